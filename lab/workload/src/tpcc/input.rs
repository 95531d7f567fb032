//! The inputs of terminals [2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1, 5.2.3].

use super::draw::{self, Draw, last_name};
use super::{DISTRICTS, Sizes};

/// The five transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An order is entered: 45 of 100.
    NewOrder,
    /// A customer pays: 43 of 100.
    Payment,
    /// A customer asks for the last order: 4 of 100.
    OrderStatus,
    /// The oldest order of each district is delivered: 4 of 100.
    Delivery,
    /// Items of late orders that are scarce are counted: 4 of 100.
    StockLevel,
}

/// The input of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// See [`Kind::NewOrder`].
    NewOrder(NewOrder),
    /// See [`Kind::Payment`].
    Payment(Payment),
    /// See [`Kind::OrderStatus`].
    OrderStatus(OrderStatus),
    /// See [`Kind::Delivery`].
    Delivery(Delivery),
    /// See [`Kind::StockLevel`].
    StockLevel(StockLevel),
}

/// An order to enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// The warehouse of the terminal.
    pub warehouse: i64,
    /// The district of the customer.
    pub district: i64,
    /// Whose order it is.
    pub customer: i64,
    /// 5 to 15; in one order of a hundred the last is of an item that does not exist.
    pub lines: Vec<Line>,
    /// When.
    pub date: i64,
}

/// A line of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Which item.
    pub item: i64,
    /// The warehouse that has it.
    pub supplier: i64,
    /// The number of items.
    pub quantity: i64,
}

/// The means by which a customer is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// By number: 40 of 100.
    Number(i64),
    /// By last name, the middle one of the customers with that name: 60 of 100.
    LastName(String),
}

/// A payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    /// The warehouse of the terminal.
    pub warehouse: i64,
    /// The district in which the payment is taken.
    pub district: i64,
    /// The customer's warehouse, another one in 15 of 100 payments.
    pub customer_warehouse: i64,
    /// The customer's district.
    pub customer_district: i64,
    /// The customer that pays.
    pub customer: Who,
    /// The amount, in cents.
    pub amount: i64,
    /// When.
    pub date: i64,
}

/// A question for the last order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderStatus {
    /// The warehouse of the terminal.
    pub warehouse: i64,
    /// The district of the customer.
    pub district: i64,
    /// The customer that asks.
    pub customer: Who,
}

/// A delivery to all districts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Whose districts.
    pub warehouse: i64,
    /// The carrier.
    pub carrier: i64,
    /// When.
    pub date: i64,
}

/// A question for scarce items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockLevel {
    /// The warehouse of the terminal.
    pub warehouse: i64,
    /// Of whose late orders.
    pub district: i64,
    /// The stock below which an item is scarce.
    pub threshold: i64,
}

impl Input {
    /// Which transaction it is of.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::NewOrder(_) => Kind::NewOrder,
            Self::Payment(_) => Kind::Payment,
            Self::OrderStatus(_) => Kind::OrderStatus,
            Self::Delivery(_) => Kind::Delivery,
            Self::StockLevel(_) => Kind::StockLevel,
        }
    }
}

impl Kind {
    /// All of them, in the order of the specification.
    pub const ALL: [Self; 5] =
        [Self::NewOrder, Self::Payment, Self::OrderStatus, Self::Delivery, Self::StockLevel];

    /// Whether it changes anything.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::NewOrder | Self::Payment | Self::Delivery)
    }
}

/// Asks without end. A few bytes of memory.
#[derive(Clone, Debug)]
pub struct Terminal {
    draw: Draw,
    sizes: Sizes,
    home: i64,
    asked: i64,
}

impl Terminal {
    /// The terminal of a number, which gives its warehouse.
    #[must_use]
    pub fn new(seed: u64, number: u32, sizes: Sizes) -> Self {
        let draw = Draw::new(crate::random::mixed(seed ^ crate::random::mixed(u64::from(number))));
        let home = i64::from(number) % sizes.warehouses.max(1) + 1;
        Self { draw, sizes, home, asked: 0 }
    }

    fn customer(&mut self) -> i64 {
        self.draw.skewed(draw::CUSTOMER, 1, self.sizes.customers)
    }

    fn who(&mut self) -> Who {
        if self.draw.chance(60) {
            Who::LastName(last_name(self.draw.skewed(draw::NAME, 0, self.sizes.last_names())))
        } else {
            Who::Number(self.customer())
        }
    }

    /// Another warehouse where there is one, in `percent` of a hundred cases.
    fn warehouse(&mut self, percent: i64) -> i64 {
        if !self.draw.chance(percent) || self.sizes.warehouses < 2 {
            return self.home;
        }
        let other = self.draw.between(1, self.sizes.warehouses - 1);
        if other < self.home { other } else { other + 1 }
    }

    fn new_order(&mut self) -> NewOrder {
        let is_wrong = self.draw.chance(1);
        let count = self.draw.between(5, 15);
        let line = |at| {
            let item = self.draw.skewed(draw::ITEM, 1, self.sizes.items);
            let item = if is_wrong && at == count { self.sizes.items + 1 } else { item };
            Line { item, supplier: self.warehouse(1), quantity: self.draw.between(1, 10) }
        };
        let lines = (1..=count).map(line).collect();
        let district = self.draw.between(1, DISTRICTS);
        let (warehouse, customer) = (self.home, self.customer());
        NewOrder { warehouse, district, customer, lines, date: self.asked }
    }

    fn payment(&mut self) -> Payment {
        let district = self.draw.between(1, DISTRICTS);
        let customer_warehouse = self.warehouse(15);
        let is_near = customer_warehouse == self.home;
        let far = self.draw.between(1, DISTRICTS);
        Payment {
            warehouse: self.home,
            district,
            customer_warehouse,
            customer_district: if is_near { district } else { far },
            customer: self.who(),
            amount: self.draw.between(100, 500_000),
            date: self.asked,
        }
    }
}

impl Iterator for Terminal {
    type Item = Input;

    fn next(&mut self) -> Option<Input> {
        self.asked += 1;
        let (warehouse, date) = (self.home, self.asked);
        let drawn = self.draw.between(1, 100);
        let district = self.draw.between(1, DISTRICTS);
        Some(match drawn {
            1..=45 => Input::NewOrder(self.new_order()),
            46..=88 => Input::Payment(self.payment()),
            89..=92 => {
                Input::OrderStatus(OrderStatus { warehouse, district, customer: self.who() })
            }
            93..=96 => {
                Input::Delivery(Delivery { warehouse, carrier: self.draw.between(1, 10), date })
            }
            _ => {
                let threshold = self.draw.between(10, 20);
                Input::StockLevel(StockLevel { warehouse, district, threshold })
            }
        })
    }
}

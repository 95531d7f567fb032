//! The first rows [4.3.3.1].

use rusqlite::{Connection, Result, params};

use super::draw::{self, Draw, last_name};
use super::{DISTRICTS, Sizes, schema};

/// Money that a customer, a district and a warehouse begin with having paid or taken, in cents.
const PAID: i64 = 1_000;

/// Makes the tables and their first rows, which follow from the seed; each warehouse is one
/// transaction. `tell` hears how many warehouses are made, and says whether to go on.
///
/// # Errors
/// Those of SQLite; [`rusqlite::ffi::SQLITE_INTERRUPT`] when `tell` says so.
pub fn load(
    connection: &Connection,
    sizes: Sizes,
    seed: u64,
    tell: &mut dyn FnMut(i64) -> bool,
) -> Result<()> {
    let mut draw = Draw::new(seed);
    connection.execute_batch(schema::TABLES)?;
    connection.execute_batch("BEGIN")?;
    items(connection, sizes, &mut draw)?;
    connection.execute_batch("COMMIT")?;
    for warehouse in 1..=sizes.warehouses {
        if !tell(warehouse - 1) {
            return Err(interrupted());
        }
        connection.execute_batch("BEGIN")?;
        one_warehouse(connection, warehouse, sizes, &mut draw)?;
        stock(connection, warehouse, sizes, &mut draw)?;
        for district in 1..=DISTRICTS {
            one_district(connection, warehouse, district, sizes, &mut draw)?;
            customers(connection, warehouse, district, sizes, &mut draw)?;
            orders(connection, warehouse, district, sizes, &mut draw)?;
        }
        connection.execute_batch("COMMIT")?;
    }
    connection.execute_batch(schema::INDEXES)
}

fn interrupted() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_INTERRUPT);
    rusqlite::Error::SqliteFailure(code, None)
}

fn items(connection: &Connection, sizes: Sizes, draw: &mut Draw) -> Result<()> {
    let mut insert = connection.prepare("INSERT INTO item VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for item in 1..=sizes.items {
        let (image, name) = (draw.between(1, 10_000), draw.text(14, 24));
        let price = draw.between(100, 10_000);
        insert.execute(params![item, image, name, price, draw.data()])?;
    }
    Ok(())
}

fn one_warehouse(
    connection: &Connection,
    warehouse: i64,
    sizes: Sizes,
    draw: &mut Draw,
) -> Result<()> {
    let taken = PAID * DISTRICTS * sizes.customers;
    let name = draw.text(6, 10);
    let [street_1, street_2, city, state, zip] = draw.address();
    let insert = "INSERT INTO warehouse VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    connection.execute(
        insert,
        params![
            warehouse,
            name,
            street_1,
            street_2,
            city,
            state,
            zip,
            draw.between(0, 2_000),
            taken,
        ],
    )?;
    Ok(())
}

fn one_district(
    connection: &Connection,
    warehouse: i64,
    district: i64,
    sizes: Sizes,
    draw: &mut Draw,
) -> Result<()> {
    let name = draw.text(6, 10);
    let [street_1, street_2, city, state, zip] = draw.address();
    let insert = "INSERT INTO district VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    connection.execute(
        insert,
        params![
            district,
            warehouse,
            name,
            street_1,
            street_2,
            city,
            state,
            zip,
            draw.between(0, 2_000),
            PAID * sizes.customers,
            sizes.customers + 1,
        ],
    )?;
    Ok(())
}

fn stock(connection: &Connection, warehouse: i64, sizes: Sizes, draw: &mut Draw) -> Result<()> {
    let mut insert = connection.prepare(
        "INSERT INTO stock VALUES
         (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 0, 0, 0, ?14)",
    )?;
    for item in 1..=sizes.items {
        insert.raw_bind_parameter(1, item)?;
        insert.raw_bind_parameter(2, warehouse)?;
        insert.raw_bind_parameter(3, draw.between(10, 100))?;
        for column in 4..=13 {
            insert.raw_bind_parameter(column, draw.text(24, 24))?;
        }
        insert.raw_bind_parameter(14, draw.data())?;
        insert.raw_execute()?;
    }
    Ok(())
}

fn customers(
    connection: &Connection,
    warehouse: i64,
    district: i64,
    sizes: Sizes,
    draw: &mut Draw,
) -> Result<()> {
    let mut insert = connection.prepare(
        "INSERT INTO customer VALUES (?1, ?2, ?3, ?4, 'OE', ?5, ?6, ?7, ?8, ?9, ?10, ?11, 0, ?12,
         5000000, ?13, -1000, 1000, 1, 0, ?14)",
    )?;
    let mut history =
        connection.prepare("INSERT INTO history VALUES (?1, ?2, ?3, ?2, ?3, 0, ?4, ?5)")?;
    let names = sizes.last_names();
    for customer in 1..=sizes.customers {
        let is_first = customer <= 1_000;
        let name = if is_first { customer - 1 } else { draw.skewed(draw::NAME_LOADED, 0, names) };
        let first = draw.text(8, 16);
        let [street_1, street_2, city, state, zip] = draw.address();
        insert.execute(params![
            customer,
            district,
            warehouse,
            first,
            last_name(name),
            street_1,
            street_2,
            city,
            state,
            zip,
            draw.digits(16),
            if draw.chance(10) { "BC" } else { "GC" },
            draw.between(0, 5_000),
            draw.text(300, 500),
        ])?;
        history.execute(params![customer, district, warehouse, PAID, draw.text(12, 24)])?;
    }
    Ok(())
}

fn orders(
    connection: &Connection,
    warehouse: i64,
    district: i64,
    sizes: Sizes,
    draw: &mut Draw,
) -> Result<()> {
    let mut order =
        connection.prepare("INSERT INTO orders VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6, 1)")?;
    let mut line = connection
        .prepare("INSERT INTO order_line VALUES (?1, ?2, ?3, ?4, ?5, ?3, ?6, 5, ?7, ?8)")?;
    let mut waiting = connection.prepare("INSERT INTO new_order VALUES (?1, ?2, ?3)")?;
    for (number, customer) in (1..).zip(draw.permutation(sizes.customers)) {
        let is_delivered = number < sizes.first_undelivered();
        let lines = draw.between(5, 15);
        let carrier = is_delivered.then(|| draw.between(1, 10));
        order.execute(params![number, district, warehouse, customer, carrier, lines])?;
        for at in 1..=lines {
            let item = draw.between(1, sizes.items);
            let amount = if is_delivered { 0 } else { draw.between(1, 999_999) };
            let date = is_delivered.then_some(0);
            let info = draw.text(24, 24);
            line.execute(params![number, district, warehouse, at, item, date, amount, info])?;
        }
        if !is_delivered {
            waiting.execute(params![number, district, warehouse])?;
        }
    }
    Ok(())
}

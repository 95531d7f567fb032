use std::collections::BTreeMap;

use rusqlite::Connection;

use super::consistency::{Broken, check};
use super::draw::{self, Draw, last_name};
use super::load::load;
use super::perform::{End, perform};
use super::{Input, Kind, Sizes, Terminal};

fn loaded(warehouses: i64) -> (Connection, Sizes) {
    let connection = Connection::open_in_memory().unwrap();
    let sizes = Sizes::small(warehouses);
    load(&connection, sizes, 1, &mut |_| true).unwrap();
    (connection, sizes)
}

fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Everything of every table, as a number.
fn fingerprint(connection: &Connection) -> i64 {
    let tables = ["district", "customer", "orders", "order_line", "stock", "history"];
    let sums = tables.map(|table| {
        let columns: String = connection
            .query_row(
                "SELECT group_concat(name, ' || ') FROM pragma_table_info(?1)",
                [table],
                |row| row.get(0),
            )
            .unwrap();
        let all = format!(
            "SELECT total(length({0}) * rowid) + total(unicode(substr({0}, 3))) FROM
             (SELECT rowid, * FROM {table})",
            columns
                .split(" || ")
                .map(|name| format!("coalesce({name}, '')"))
                .collect::<Vec<_>>()
                .join(" || ")
        );
        connection.query_row(&all, [], |row| row.get::<_, f64>(0)).unwrap() as i64
    });
    sums.iter().sum()
}

#[test]
fn the_first_rows_are_those_of_the_specification() {
    let (connection, sizes) = loaded(2);
    let count = |table| number(&connection, &format!("SELECT count(*) FROM {table}"));
    assert_eq!(count("item"), sizes.items);
    assert_eq!(count("stock"), 2 * sizes.items);
    assert_eq!(count("customer"), 20 * sizes.customers);
    assert_eq!(count("orders"), count("customer"));
    assert_eq!(count("history"), count("customer"));
    assert_eq!(count("new_order"), count("orders") * 3 / 10);
    assert_eq!(check(&connection).unwrap(), []);
    assert_eq!(Sizes::full(1).first_undelivered(), 2_101);
}

#[test]
fn numbers_and_names_are_those_of_the_specification() {
    assert_eq!(last_name(371), "PRICALLYOUGHT");
    assert_eq!(last_name(0), "BARBARBAR");
    let mut draw = Draw::new(3);
    let drawn: Vec<i64> = (0..30_000).map(|_| draw.skewed(draw::CUSTOMER, 1, 3_000)).collect();
    assert!(drawn.iter().all(|number| (1..=3_000).contains(number)));
    // With the bits of the one or of the other, most numbers have most of their low bits set.
    let mut counts = vec![0; 3_001];
    drawn.iter().for_each(|number| counts[*number as usize] += 1);
    assert!(counts.iter().max().unwrap() > &100, "even numbers would come ten times each");
    let mut sorted = draw.permutation(500);
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(1..=500));
}

#[test]
fn a_seed_asks_for_the_same_in_the_given_mix() {
    let sizes = Sizes::full(3);
    let ask = || Terminal::new(7, 2, sizes).take(20_000);
    assert!(ask().eq(ask()));
    assert!(!Terminal::new(7, 1, sizes).take(100).eq(ask().take(100)));
    let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
    ask().for_each(|input| *kinds.entry(input.kind()).or_default() += 1);
    for (kind, percent) in Kind::ALL.into_iter().zip([45, 43, 4, 4, 4]) {
        let found = kinds[&kind];
        assert!(found.abs_diff(percent * 200) < 300, "{kind:?}: {found} of 20,000");
    }
    let orders = ask().filter_map(|input| match input {
        Input::NewOrder(order) => Some(order),
        _ => None,
    });
    let (mut wrong, mut remote, mut lines) = (0, 0, 0);
    for order in orders {
        assert!((5..=15).contains(&order.lines.len()));
        wrong += usize::from(order.lines.iter().any(|line| line.item > sizes.items));
        remote += order.lines.iter().filter(|line| line.supplier != order.warehouse).count();
        lines += order.lines.len();
    }
    assert!((50..150).contains(&wrong), "{wrong} of 9,000 orders are rolled back");
    assert!(remote.abs_diff(lines / 100) < lines / 300, "{remote} of {lines} lines are remote");
}

#[test]
fn conditions_hold_after_any_number_of_transactions() {
    let run = || {
        let (connection, sizes) = loaded(2);
        let mut rollbacks = 0;
        for input in Terminal::new(11, 0, sizes).take(1_500) {
            connection.execute_batch("BEGIN").unwrap();
            match perform(&connection, &input).unwrap() {
                End::Commit => connection.execute_batch("COMMIT").unwrap(),
                End::Rollback => {
                    rollbacks += 1;
                    connection.execute_batch("ROLLBACK").unwrap();
                }
            }
        }
        assert_eq!(check(&connection).unwrap(), []);
        assert!((1..20).contains(&rollbacks), "{rollbacks}");
        let orders = number(&connection, "SELECT count(*) FROM orders WHERE o_entry_d > 0");
        assert!((600..=750).contains(&orders), "{orders}");
        assert!(number(&connection, "SELECT count(*) FROM orders WHERE o_carrier_id > 0") > 840);
        assert!(number(&connection, "SELECT sum(s_remote_cnt) FROM stock") > 0);
        fingerprint(&connection)
    };
    assert_eq!(run(), run());
}

#[test]
fn each_condition_is_looked_at() {
    let breaks = [
        "UPDATE warehouse SET w_ytd = w_ytd + 1",
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = 3",
        "DELETE FROM new_order WHERE no_o_id = 50 AND no_d_id = 2",
        "DELETE FROM order_line WHERE ol_o_id = 7 AND ol_number = 1 AND ol_d_id = 1",
    ];
    for (condition, harm) in (1..).zip(breaks) {
        let (connection, _) = loaded(1);
        assert!(connection.execute(harm, []).unwrap() > 0);
        assert_eq!(check(&connection).unwrap(), [Broken { condition, places: 1 }]);
    }
}

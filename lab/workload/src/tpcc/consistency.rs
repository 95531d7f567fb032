//! Conditions that hold between the tables after any number of transactions
//! [3.3.2.1 to 3.3.2.4].

use rusqlite::{Connection, Result};

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// 1 to 4, as in [3.3.2].
    pub condition: u8,
    /// In how many warehouses or districts.
    pub places: i64,
}

/// The conditions, each as the number of places where it does not hold.
const CONDITIONS: [&str; 4] = [
    // What a warehouse took is what its districts took.
    "SELECT count(*) FROM warehouse
     WHERE w_ytd IS NOT (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id)",
    // The next order's number follows the greatest, and that of the orders not yet delivered.
    "SELECT count(*) FROM district WHERE
     d_next_o_id - 1 IS NOT
       (SELECT max(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id)
     OR d_next_o_id - 1 <> coalesce(
       (SELECT max(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id),
       d_next_o_id - 1)",
    // Orders that are not delivered are numbered without gaps.
    "SELECT count(*) FROM
     (SELECT max(no_o_id) - min(no_o_id) + 1 AS span, count(*) AS there
      FROM new_order GROUP BY no_w_id, no_d_id)
     WHERE span <> there",
    // The orders of a district have as many lines as they say.
    "SELECT count(*) FROM district WHERE
     (SELECT sum(o_ol_cnt) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) IS NOT
     (SELECT count(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id)",
];

/// Checks all four; the result is empty where all hold. Reads all orders and their lines.
///
/// # Errors
/// Those of SQLite.
pub fn check(connection: &Connection) -> Result<Vec<Broken>> {
    let mut broken = Vec::new();
    for (condition, sql) in (1..).zip(CONDITIONS) {
        let places: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        if places > 0 {
            broken.push(Broken { condition, places });
        }
    }
    Ok(broken)
}

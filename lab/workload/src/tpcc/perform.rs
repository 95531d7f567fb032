//! The SQL of each transaction, between its beginning and its end, which are the caller's.

use rusqlite::{Connection, OptionalExtension, Params, Result, params};

use super::DISTRICTS;
use super::input::{Delivery, Input, Line, NewOrder, OrderStatus, Payment, StockLevel, Who};

/// Statements that a connection should keep prepared (`set_prepared_statement_cache_capacity`).
pub const STATEMENTS: usize = 64;

/// The way in which a transaction is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The changes are right.
    Commit,
    /// An item of the order does not exist.
    Rollback,
}

/// Does what was asked for, inside the transaction that is open.
///
/// # Errors
/// Those of SQLite; the transaction is then to be rolled back.
pub fn perform(connection: &Connection, input: &Input) -> Result<End> {
    match input {
        Input::NewOrder(input) => return new_order(connection, input),
        Input::Payment(input) => payment(connection, input)?,
        Input::OrderStatus(input) => order_status(connection, input)?,
        Input::Delivery(input) => delivery(connection, input)?,
        Input::StockLevel(input) => stock_level(connection, input)?,
    }
    Ok(End::Commit)
}

fn execute(connection: &Connection, sql: &str, params: impl Params) -> Result<usize> {
    connection.prepare_cached(sql)?.execute(params)
}

fn number(connection: &Connection, sql: &str, params: impl Params) -> Result<i64> {
    connection.prepare_cached(sql)?.query_row(params, |row| row.get(0))
}

fn new_order(connection: &Connection, input: &NewOrder) -> Result<End> {
    let (warehouse, district) = (input.warehouse, input.district);
    number(connection, "SELECT w_tax FROM warehouse WHERE w_id = ?1", [warehouse])?;
    let order = number(
        connection,
        "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ?1 AND d_id = ?2",
        [warehouse, district],
    )?;
    execute(
        connection,
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ?1 AND d_id = ?2",
        [warehouse, district],
    )?;
    number(
        connection,
        "SELECT c_discount, c_last, c_credit FROM customer
         WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
        [warehouse, district, input.customer],
    )?;
    let is_local = input.lines.iter().all(|line| line.supplier == warehouse);
    let lines = i64::try_from(input.lines.len()).unwrap_or(i64::MAX);
    execute(
        connection,
        "INSERT INTO orders VALUES (?1, ?2, ?3, ?4, ?5, NULL, ?6, ?7)",
        params![order, district, warehouse, input.customer, input.date, lines, is_local],
    )?;
    let waiting = "INSERT INTO new_order VALUES (?1, ?2, ?3)";
    execute(connection, waiting, [order, district, warehouse])?;
    for (at, line) in (1..).zip(&input.lines) {
        if !order_line(connection, input, order, at, *line)? {
            return Ok(End::Rollback);
        }
    }
    Ok(End::Commit)
}

/// Enters a line; `false` where the item does not exist.
fn order_line(
    connection: &Connection,
    input: &NewOrder,
    order: i64,
    at: i64,
    line: Line,
) -> Result<bool> {
    let price = connection
        .prepare_cached("SELECT i_price, i_name, i_data FROM item WHERE i_id = ?1")?
        .query_row([line.item], |row| row.get::<_, i64>(0))
        .optional()?;
    let Some(price) = price else { return Ok(false) };
    let column = format!("s_dist_{:02}", input.district);
    let (quantity, info): (i64, String) = connection
        .prepare_cached(&format!(
            "SELECT s_quantity, {column}, s_data FROM stock WHERE s_w_id = ?1 AND s_i_id = ?2"
        ))?
        .query_row([line.supplier, line.item], |row| Ok((row.get(0)?, row.get(1)?)))?;
    // Stock that would fall below ten is filled up [2.4.2.2].
    let left = quantity - line.quantity;
    let left = if left < 10 { left + 91 } else { left };
    let is_remote = line.supplier != input.warehouse;
    execute(
        connection,
        "UPDATE stock SET s_quantity = ?1, s_ytd = s_ytd + ?2, s_order_cnt = s_order_cnt + 1,
         s_remote_cnt = s_remote_cnt + ?3 WHERE s_w_id = ?4 AND s_i_id = ?5",
        params![left, line.quantity, is_remote, line.supplier, line.item],
    )?;
    execute(
        connection,
        "INSERT INTO order_line VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL, ?7, ?8, ?9)",
        params![
            order,
            input.district,
            input.warehouse,
            at,
            line.item,
            line.supplier,
            line.quantity,
            line.quantity * price,
            info,
        ],
    )?;
    Ok(true)
}

/// The number of a customer.
fn customer(connection: &Connection, warehouse: i64, district: i64, who: &Who) -> Result<i64> {
    let name = match who {
        Who::Number(number) => return Ok(*number),
        Who::LastName(name) => name,
    };
    let mut query = connection.prepare_cached(
        "SELECT c_id FROM customer WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_last = ?3
         ORDER BY c_first",
    )?;
    let found = query.query_map(params![warehouse, district, name], |row| row.get(0))?;
    let found: Vec<i64> = found.collect::<Result<_>>()?;
    // Of an even number of customers the earlier of the two in the middle [2.5.2.2].
    let middle = found.len().saturating_sub(1) / 2;
    found.get(middle).copied().ok_or(rusqlite::Error::QueryReturnedNoRows)
}

fn payment(connection: &Connection, input: &Payment) -> Result<()> {
    let (warehouse, district) = (input.warehouse, input.district);
    let (far_warehouse, far_district) = (input.customer_warehouse, input.customer_district);
    let text = |sql: &str, ids: &[i64]| {
        let mut query = connection.prepare_cached(sql)?;
        query.query_row(rusqlite::params_from_iter(ids), |row| row.get::<_, String>(0))
    };
    let update = "UPDATE warehouse SET w_ytd = w_ytd + ?1 WHERE w_id = ?2";
    execute(connection, update, [input.amount, warehouse])?;
    let warehouse_name = text(
        "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse
         WHERE w_id = ?1",
        &[warehouse],
    )?;
    let update = "UPDATE district SET d_ytd = d_ytd + ?1 WHERE d_w_id = ?2 AND d_id = ?3";
    execute(connection, update, [input.amount, warehouse, district])?;
    let district_name = text(
        "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district
         WHERE d_w_id = ?1 AND d_id = ?2",
        &[warehouse, district],
    )?;
    let customer = customer(connection, far_warehouse, far_district, &input.customer)?;
    pay(connection, input, customer)?;
    execute(
        connection,
        "INSERT INTO history VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            customer,
            far_district,
            far_warehouse,
            district,
            warehouse,
            input.date,
            input.amount,
            format!("{warehouse_name}    {district_name}"),
        ],
    )?;
    Ok(())
}

/// Notes a payment with its customer; with bad credit, also in the customer's data [2.5.2.2].
fn pay(connection: &Connection, input: &Payment, customer: i64) -> Result<()> {
    let (warehouse, district) = (input.customer_warehouse, input.customer_district);
    let credit: String = connection
        .prepare_cached(
            "SELECT c_credit, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state,
             c_zip, c_phone, c_credit_lim, c_discount, c_balance, c_since FROM customer
             WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
        )?
        .query_row([warehouse, district, customer], |row| row.get(0))?;
    execute(
        connection,
        "UPDATE customer SET c_balance = c_balance - ?1, c_ytd_payment = c_ytd_payment + ?1,
         c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = ?2 AND c_d_id = ?3 AND c_id = ?4",
        [input.amount, warehouse, district, customer],
    )?;
    if credit == "BC" {
        let note = format!(
            "{customer} {district} {warehouse} {} {} {} | ",
            input.district, input.warehouse, input.amount
        );
        execute(
            connection,
            "UPDATE customer SET c_data = substr(?1 || c_data, 1, 500)
             WHERE c_w_id = ?2 AND c_d_id = ?3 AND c_id = ?4",
            params![note, warehouse, district, customer],
        )?;
    }
    Ok(())
}

fn order_status(connection: &Connection, input: &OrderStatus) -> Result<()> {
    let (warehouse, district) = (input.warehouse, input.district);
    let customer = customer(connection, warehouse, district, &input.customer)?;
    number(
        connection,
        "SELECT c_balance, c_first, c_middle, c_last FROM customer
         WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
        [warehouse, district, customer],
    )?;
    let order = number(
        connection,
        "SELECT o_id, o_entry_d, o_carrier_id FROM orders
         WHERE o_w_id = ?1 AND o_d_id = ?2 AND o_c_id = ?3 ORDER BY o_id DESC LIMIT 1",
        [warehouse, district, customer],
    )?;
    let mut lines = connection.prepare_cached(
        "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
         WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3",
    )?;
    let mut rows = lines.query([warehouse, district, order])?;
    while rows.next()?.is_some() {}
    Ok(())
}

fn delivery(connection: &Connection, input: &Delivery) -> Result<()> {
    for district in 1..=DISTRICTS {
        let place = [input.warehouse, district];
        let oldest = connection
            .prepare_cached(
                "SELECT no_o_id FROM new_order WHERE no_w_id = ?1 AND no_d_id = ?2
                 ORDER BY no_o_id LIMIT 1",
            )?
            .query_row(place, |row| row.get::<_, i64>(0))
            .optional()?;
        // A district without a waiting order is left out [2.7.4.2].
        if let Some(order) = oldest {
            deliver(connection, input, district, order)?;
        }
    }
    Ok(())
}

fn deliver(connection: &Connection, input: &Delivery, district: i64, order: i64) -> Result<()> {
    let place = [input.warehouse, district, order];
    execute(
        connection,
        "DELETE FROM new_order WHERE no_w_id = ?1 AND no_d_id = ?2 AND no_o_id = ?3",
        place,
    )?;
    let customer = number(
        connection,
        "SELECT o_c_id FROM orders WHERE o_w_id = ?1 AND o_d_id = ?2 AND o_id = ?3",
        place,
    )?;
    execute(
        connection,
        "UPDATE orders SET o_carrier_id = ?4 WHERE o_w_id = ?1 AND o_d_id = ?2 AND o_id = ?3",
        [input.warehouse, district, order, input.carrier],
    )?;
    execute(
        connection,
        "UPDATE order_line SET ol_delivery_d = ?4
         WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3",
        [input.warehouse, district, order, input.date],
    )?;
    let amount = number(
        connection,
        "SELECT sum(ol_amount) FROM order_line
         WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3",
        place,
    )?;
    execute(
        connection,
        "UPDATE customer SET c_balance = c_balance + ?4, c_delivery_cnt = c_delivery_cnt + 1
         WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
        [input.warehouse, district, customer, amount],
    )?;
    Ok(())
}

fn stock_level(connection: &Connection, input: &StockLevel) -> Result<()> {
    let next = number(
        connection,
        "SELECT d_next_o_id FROM district WHERE d_w_id = ?1 AND d_id = ?2",
        [input.warehouse, input.district],
    )?;
    number(
        connection,
        "SELECT count(DISTINCT s_i_id) FROM order_line CROSS JOIN stock
         WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id >= ?3 - 20 AND ol_o_id < ?3
         AND s_w_id = ?1 AND s_i_id = ol_i_id AND s_quantity < ?4",
        [input.warehouse, input.district, next, input.threshold],
    )?;
    Ok(())
}

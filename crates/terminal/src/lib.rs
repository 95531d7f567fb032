//! The terminal of the `esker` command, for the commands of the store and those of the laboratory.
//!
//! Reading order: [`exit`] (failures and their exit codes), [`output`], [`table`], [`progress`],
//! [`redraw`] and [`signals`] (the interface to the terminal), [`kind`] (the argument for the kind
//! of an index).
//! What is not here: the command line and its commands.

pub mod exit;
pub mod kind;
pub mod output;
pub mod progress;
pub mod redraw;
pub mod signals;
pub mod table;

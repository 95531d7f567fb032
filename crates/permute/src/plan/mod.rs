//! The choice of the passes that rearrange an array, and their cost.
//!
//! Reading order: [`price`] (the cost of a pass), [`cut`] (passes from acting extents),
//! [`one_pass`] (the best single pass), [`passes`] (the best of one or several).

pub mod cut;
pub mod one_pass;
pub mod passes;
pub mod price;

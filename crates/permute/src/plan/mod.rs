//! Which passes rearrange an array, and at what cost.
//!
//! Reading order: [`price`] (what a pass costs), [`cut`] (passes from acting extents),
//! [`one_pass`] (the best single pass), [`passes`] (the best of one or several).

pub mod cut;
pub mod one_pass;
pub mod passes;
pub mod price;

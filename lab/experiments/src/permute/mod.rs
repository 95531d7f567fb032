//! Arrays rearranged by `esker-permute`.
//!
//! [`rearrange`] is `esker bench permute`, which makes the files of [`cases`] and measures them.
//! [`passes`] and [`asymmetry`] are the experiments of Thonangi's thesis (section 3.4), in the
//! setting of [`thesis`].

pub mod asymmetry;
pub mod cases;
pub mod passes;
pub mod rearrange;
pub mod thesis;

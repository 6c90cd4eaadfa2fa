//! What a proxy counts: traffic classes, and the arrivals of each in the last second.

pub mod class;
pub mod classes;
pub mod load;

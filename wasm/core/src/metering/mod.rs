//! What a proxy counts: traffic classes, and the arrivals of each in the last second. And when the
//! rate of arrivals has changed.

pub mod changes;
pub mod class;
pub mod classes;
pub mod load;

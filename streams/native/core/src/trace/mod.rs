//! Turns spans into whole traces, and traces into calls with exclusive time. All timing uses log
//! time. `output` makes the rows.

pub(crate) mod clock;
pub(crate) mod cohort;
pub(crate) mod exclusive;
pub(crate) mod ids;
pub(crate) mod link;
pub(crate) mod passed;
pub(crate) mod seen;
pub(crate) mod slots;
pub(crate) mod window;

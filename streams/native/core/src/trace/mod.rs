//! Spans -> whole traces -> calls with exclusive time, by the log's own time. Rows are made in `output`.

pub(crate) mod clock;
pub(crate) mod cohort;
pub(crate) mod exclusive;
pub(crate) mod ids;
pub(crate) mod link;
pub(crate) mod passed;
pub(crate) mod seen;
pub(crate) mod slots;
pub(crate) mod window;

//! Traffic classes: ids, path templates, and the rules that pin or learn them.
//!
//! `decode` determines which service, method and template a span names.

pub mod class_id;
pub mod rules;
pub mod template;

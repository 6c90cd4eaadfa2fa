//! Traffic classes: ids, path templates, and the rules that pin or learn them. Which spans they name is decided in `decode`.

pub mod class_id;
pub mod rules;
pub mod template;

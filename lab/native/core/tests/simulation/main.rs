//! Whole simulations: compared with theory, request by request, and with the same and other seeds.

mod applications;
mod behaviour;
mod load;
mod requests;
mod seeds;
mod theory;

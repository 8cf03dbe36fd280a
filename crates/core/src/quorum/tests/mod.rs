//! Tables of cases, and small worlds explored in full.

mod cases;
mod clients;
mod data_loss;
mod membership;
mod model;
mod set;
mod tally;
mod tenures;
mod vouching;
mod waiting;
mod walk;

use crate::lease_id::LeaseId;
use crate::token::FencingToken;

fn id(number: u8) -> LeaseId {
    LeaseId::from_bytes([number; 16])
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("a good number")
}

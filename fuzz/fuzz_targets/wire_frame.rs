//! Every message of the jail's wire protocol, from arbitrary bytes. An accepted message is the same after encoding and
//! decoding it again.

use ringfence_jail::{
    Plan,
    wire::{self, Event, InitEvent, InitOrder, Order, Start},
};
use serde::{Serialize, de::DeserializeOwned};

/// One input.
pub fn run(bytes: &[u8]) {
    round_trip::<Start>(bytes);
    round_trip::<Order>(bytes);
    round_trip::<Event>(bytes);
    round_trip::<InitOrder>(bytes);
    round_trip::<InitEvent>(bytes);
    round_trip::<Plan>(bytes);
}

fn round_trip<T: DeserializeOwned + Serialize>(bytes: &[u8]) {
    let Ok(message) = wire::decode::<T>(bytes) else {
        return;
    };
    let first = serde_json::to_vec(&message).expect("a message can always be written");
    if first.len() > wire::MESSAGE_BYTES_MAX {
        return; // escapes may make the message longer; `send` refuses it
    }
    let again = wire::decode::<T>(&first).expect("an encoded message can be decoded");
    let second = serde_json::to_vec(&again).expect("a message can always be written");
    assert_eq!(first, second);
}

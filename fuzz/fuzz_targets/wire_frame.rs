//! Every message of the jail's wire, from bytes that no encoder of ours made. What is accepted must survive the way
//! back: encoded and decoded again it is the same message.

use ringfence_jail::{
    Plan,
    wire::{self, Event, InitEvent, InitOrder, Order, Start},
};
use serde::{Serialize, de::DeserializeOwned};

/// One input.
pub fn run(bytes: &[u8]) {
    there_and_back::<Start>(bytes);
    there_and_back::<Order>(bytes);
    there_and_back::<Event>(bytes);
    there_and_back::<InitOrder>(bytes);
    there_and_back::<InitEvent>(bytes);
    there_and_back::<Plan>(bytes);
}

fn there_and_back<T: DeserializeOwned + Serialize>(bytes: &[u8]) {
    let Ok(message) = wire::decode::<T>(bytes) else {
        return;
    };
    let first = serde_json::to_vec(&message).expect("a message can always be written");
    if first.len() > wire::MESSAGE_BYTES_MAX {
        return; // escapes may make it longer; `send` refuses it
    }
    let again = wire::decode::<T>(&first).expect("what we wrote can be read");
    let second = serde_json::to_vec(&again).expect("a message can always be written");
    assert_eq!(first, second);
}

//! Ids of requests. The protocol library finds a request by its id alone: it would drop one of two open requests with
//! one id, and give the result of a cancelled request to a later one with its id. Therefore it sees no id twice: each
//! request gets one that contains the client's, and its answer the client's.

use rmcp::{
    ErrorData, RoleServer,
    model::{ClientNotification, ClientRequest, JsonRpcMessage, RequestId},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
};
use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, LazyLock, Weak},
};

/// Begins the library's ids, unknown to clients: the id of a subscription remains the client's.
static PREFIX: LazyLock<String> = LazyLock::new(|| format!("{:016x}:", RandomState::new().hash_one(())));

/// The library copies the id several times, into its tables and its log.
const ID_BYTES_MAX: usize = 1 << 10;

#[derive(Default)]
pub(crate) struct RequestIds {
    last: u64,
    /// By the id of the client: the library's, and whether the request is held by its handler.
    open: HashMap<RequestId, (RequestId, Weak<()>)>,
}

/// An extension of a request; its handler drops it before the answer is sent.
#[derive(Clone)]
struct Held(#[expect(dead_code, reason = "counted")] Arc<()>);

impl RequestIds {
    /// Replaces the id of a request, and names it in its cancellation, which frees the client's id. That of a
    /// subscription is kept, and free when it has ended. The error is sent without an id: under that of an open request
    /// it would be taken for the answer.
    pub(crate) fn replace(&mut self, message: &mut RxJsonRpcMessage<RoleServer>) -> Result<(), ErrorData> {
        self.open.retain(|_, (_, held)| held.strong_count() > 0);
        match message {
            JsonRpcMessage::Notification(notice) => {
                if let ClientNotification::CancelledNotification(cancelled) = &mut notice.notification
                    && let Some(id) = &mut cancelled.params.request_id
                    && let Some((ours, _)) = self.open.get(id)
                    && ours != id
                {
                    let theirs = std::mem::replace(id, ours.clone());
                    self.open.remove(&theirs);
                }
            }
            JsonRpcMessage::Request(request) => {
                let (theirs, held) = (request.id.clone(), Arc::new(()));
                if matches!(&theirs, RequestId::String(text) if text.len() > ID_BYTES_MAX) {
                    let message = format!("the id of a request has at most {ID_BYTES_MAX} bytes");
                    return Err(ErrorData::invalid_request(message, None));
                }
                if self.open.contains_key(&theirs) {
                    return Err(ErrorData::invalid_request("a request with this id is open", None));
                }
                self.last += 1;
                // The notifications of a subscription contain its id.
                if !matches!(request.request, ClientRequest::SubscriptionsListenRequest(_)) {
                    let ours = format!("{}{}:{}", *PREFIX, self.last, theirs.clone().into_json_value());
                    request.id = RequestId::String(ours.into());
                }
                let of_request = (request.id.clone(), Arc::downgrade(&held));
                self.open.insert(theirs, of_request);
                message.insert_extension(Held(held));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the id of the request that a message of the client cancels.
pub(crate) fn cancelled(message: &RxJsonRpcMessage<RoleServer>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Notification(message) => match &message.notification {
            ClientNotification::CancelledNotification(cancelled) => cancelled.params.request_id.as_ref(),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the id of the request that a message of the server answers.
pub(crate) fn answered(message: &TxJsonRpcMessage<RoleServer>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    }
}

/// Returns the client's id of the request that this message answers, if [`RequestIds`] has replaced it.
pub(crate) fn client_id(message: &TxJsonRpcMessage<RoleServer>) -> Option<RequestId> {
    let RequestId::String(ours) = answered(message)? else {
        return None;
    };
    serde_json::from_str(ours.strip_prefix(PREFIX.as_str())?.split_once(':')?.1).ok()
}

/// Gives the answer of a request the client's id.
pub(crate) fn restore(message: &mut TxJsonRpcMessage<RoleServer>) {
    let Some(theirs) = client_id(message) else { return };
    match message {
        JsonRpcMessage::Response(response) => response.id = theirs,
        JsonRpcMessage::Error(error) => error.id = Some(theirs),
        _ => {}
    }
}

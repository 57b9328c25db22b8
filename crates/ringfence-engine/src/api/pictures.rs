//! Pictures for clients.

use super::Engine;
use crate::picture::{Picture, safe};

impl Engine {
    /// Draws a program's picture (PNG, JPEG, GIF, WebP) anew in a sandbox, small enough for a model and without
    /// anything but its pixels. `None`: it cannot be shown.
    pub async fn picture(&self, bytes: Vec<u8>) -> Option<Picture> {
        safe(&self.services().sandboxes, bytes).await
    }
}

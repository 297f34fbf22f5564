//! HMAC (RFC 2104) over a text in parts, by SHA-2: what deliveries are signed with.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// HMAC-SHA256, 32 bytes.
pub fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    hmac::<Hmac<Sha256>>(key, parts)
}

#[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
fn hmac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

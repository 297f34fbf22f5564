//! HMAC (RFC 2104) over a text in parts, by SHA-2: what deliveries are signed with, and webhooks that come in.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha512};

/// HMAC-SHA256, 32 bytes.
pub fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    hmac::<Hmac<Sha256>>(key, parts)
}

/// Whether `tag` is the HMAC-SHA256, in a time that tells nobody how much of it is right.
pub fn is_hmac_sha256(key: &[u8], parts: &[&[u8]], tag: &[u8]) -> bool {
    is_hmac::<Hmac<Sha256>>(key, parts, tag)
}

/// The same of HMAC-SHA512.
pub fn is_hmac_sha512(key: &[u8], parts: &[&[u8]], tag: &[u8]) -> bool {
    is_hmac::<Hmac<Sha512>>(key, parts, tag)
}

fn is_hmac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]], tag: &[u8]) -> bool {
    fed::<M>(key, parts).verify_slice(tag).is_ok()
}

fn hmac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    fed::<M>(key, parts).finalize().into_bytes().to_vec()
}

#[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
fn fed<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> M {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac
}

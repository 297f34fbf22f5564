//! Signatures of deliveries by Standard Webhooks 1.0 (<https://www.standardwebhooks.com>): a receiver that
//! holds the secret can tell that id, moment and body come from here and were not changed on their way.

use std::str::FromStr;

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use secrecy::{ExposeSecret, SecretSlice};

use super::mac::{hmac_sha256, is_hmac_sha256};

/// Secrets are written with padding and, by some, without.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The key of a signing secret.
#[derive(Clone, Debug)]
pub struct SigningKey(SecretSlice<u8>);

/// Why a text is no signing secret. None of them repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The prefix marks an ed25519 key.
    #[error("begins with `{0}`, which marks an ed25519 key; deliveries are signed by HMAC-SHA256")]
    Asymmetric(&'static str),
    /// It cannot be decoded.
    #[error("is not base64")]
    NotBase64,
    /// The specification asks for 24 to 64 bytes.
    #[error("holds {0} bytes")]
    Length(usize),
}

impl FromStr for SigningKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        if let Some(prefix) = ["whsk_", "whpk_"].into_iter().find(|prefix| text.starts_with(prefix)) {
            return Err(KeyError::Asymmetric(prefix));
        }
        let encoded = text.strip_prefix("whsec_").unwrap_or(text);
        let key = LENIENT.decode(encoded).map_err(|_| KeyError::NotBase64)?;
        if !(24..=64).contains(&key.len()) {
            return Err(KeyError::Length(key.len()));
        }
        Ok(Self(key.into()))
    }
}

impl PartialEq for SigningKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.expose_secret() == other.0.expose_secret()
    }
}

impl SigningKey {
    /// Whether one of the signatures of a `webhook-signature` is made with this key.
    pub fn has_signed(&self, signatures: &str, id: &str, timestamp: &str, body: &[u8]) -> bool {
        let front = format!("{id}.{timestamp}.");
        let signatures = signatures.split(' ').filter_map(|signature| signature.strip_prefix("v1,"));
        let mut tags = signatures.filter_map(|signature| LENIENT.decode(signature).ok());
        tags.any(|tag| is_hmac_sha256(self.0.expose_secret(), &[front.as_bytes(), body], &tag))
    }

    fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let front = format!("{id}.{timestamp}.");
        let mac = hmac_sha256(self.0.expose_secret(), &[front.as_bytes(), body]);
        format!("v1,{}", STANDARD.encode(mac))
    }
}

/// The value of `webhook-signature`: one signature a key, so that receivers can change from one secret to
/// the next without missing a delivery. `None` without a key. `timestamp` is in seconds since 1970.
pub fn signatures(keys: &[SigningKey], id: &str, timestamp: i64, body: &[u8]) -> Option<String> {
    let signed: Vec<String> = keys.iter().map(|key| key.sign(id, timestamp, body)).collect();
    (!signed.is_empty()).then(|| signed.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    #[test]
    fn a_delivery_is_signed_as_the_reference_libraries_sign_it() {
        // The vector of the libraries that the specification's authors publish.
        let signed = |keys: &[SigningKey]| {
            let body = br#"{"email":"test@example.com","username":"test_user"}"#;
            signatures(keys, "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", 1_649_367_553, body)
        };
        let key: SigningKey = SECRET.parse().unwrap();
        let expected = "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=";
        assert_eq!(signed(std::slice::from_ref(&key)).as_deref(), Some(expected));
        assert_eq!(signed(&[]), None);

        let other: SigningKey = STANDARD.encode([7; 32]).parse().unwrap();
        let both = signed(&[other, key]).unwrap();
        let (first, second) = both.split_once(' ').unwrap();
        assert!(first.starts_with("v1,") && first != expected);
        assert_eq!(second, expected);
    }

    #[test]
    fn a_secret_is_24_to_64_bytes_in_base64() {
        let of = |bytes: usize| STANDARD.encode(vec![b'k'; bytes]);
        let cases = [
            (SECRET.to_owned(), Ok(())),
            (SECRET.replace("whsec_", ""), Ok(())),
            (of(24), Ok(())),
            (format!("whsec_{}", of(64)), Ok(())),
            (of(32).trim_end_matches('=').to_owned(), Ok(())),
            (of(23), Err(KeyError::Length(23))),
            (of(65), Err(KeyError::Length(65))),
            ("whsec_".to_owned(), Err(KeyError::Length(0))),
            ("my-very-secret-passphrase-of-old".to_owned(), Err(KeyError::NotBase64)),
            (format!("whsec_{} ", of(32)), Err(KeyError::NotBase64)),
            (format!("WHSEC_{}", of(32)), Err(KeyError::NotBase64)),
            (format!("whsk_{}", of(32)), Err(KeyError::Asymmetric("whsk_"))),
            (format!("whpk_{}", of(32)), Err(KeyError::Asymmetric("whpk_"))),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<SigningKey>().map(|_| ()), expected, "{text}");
        }
        assert!(!format!("{:?}", SECRET.parse::<SigningKey>()).contains("C2FV"));
    }
}

//! JSON Web Tokens (RFC 7519) signed with a passphrase, as n8n's `JWT Auth` verifies them: each attempt
//! shows a token of its own, which is good for a few minutes.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    instant::Instant,
    mac::{hmac_sha256, hmac_sha384, hmac_sha512},
};

/// How long a token is good: as long as an attempt and two clocks that differ may need.
pub const LIFE: Duration = Duration::from_mins(5);

/// The claims that every token has by itself.
pub const OWN_CLAIMS: [&str; 2] = ["iat", "exp"];

/// How a token is signed (RFC 7518, section 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Algorithm {
    /// HMAC-SHA256.
    #[default]
    HS256,
    /// HMAC-SHA384.
    HS384,
    /// HMAC-SHA512.
    HS512,
}

/// A token with these claims, issued at `now`.
pub fn mint(algorithm: Algorithm, secret: &[u8], claims: &Map<String, Value>, now: Instant) -> String {
    let mut claims = claims.clone();
    claims.insert("iat".to_owned(), now.seconds().into());
    claims.insert("exp".to_owned(), now.plus(LIFE).seconds().into());
    let header = json!({"alg": format!("{algorithm:?}"), "typ": "JWT"});
    let text = format!("{}.{}", encoded(&header), encoded(&Value::Object(claims)));
    let signature = sign(algorithm, secret, &text);
    format!("{text}.{signature}")
}

fn encoded(part: &Value) -> String {
    URL_SAFE_NO_PAD.encode(part.to_string())
}

fn sign(algorithm: Algorithm, secret: &[u8], text: &str) -> String {
    let parts = [text.as_bytes()];
    URL_SAFE_NO_PAD.encode(match algorithm {
        Algorithm::HS256 => hmac_sha256(secret, &parts),
        Algorithm::HS384 => hmac_sha384(secret, &parts),
        Algorithm::HS512 => hmac_sha512(secret, &parts),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_the_one_of_rfc_7515_appendix_a_1() {
        let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
        let text = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.\
                    eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        let key = URL_SAFE_NO_PAD.decode(key).unwrap();
        assert_eq!(sign(Algorithm::HS256, &key, text), "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
    }

    #[test]
    fn a_token_names_its_algorithm_and_ends_after_five_minutes() {
        let claims = Map::from_iter([("iss".to_owned(), json!("onlynew"))]);
        for (algorithm, name) in
            [(Algorithm::HS256, "HS256"), (Algorithm::HS384, "HS384"), (Algorithm::HS512, "HS512")]
        {
            let token = mint(algorithm, b"hush", &claims, Instant::from_seconds(1_800_000_000));
            let parts: Vec<Value> = token
                .split('.')
                .take(2)
                .map(|part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap())
                .collect();
            assert_eq!(parts[0], json!({"alg": name, "typ": "JWT"}));
            assert_eq!(parts[1], json!({"iss": "onlynew", "iat": 1_800_000_000, "exp": 1_800_000_300}));
        }
    }
}

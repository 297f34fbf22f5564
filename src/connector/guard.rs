//! Stands before every connection: what a host name leads to is held against `allow_private` after DNS has
//! answered, so that the address that was checked is the one that is connected to. Addresses written in a
//! URL never meet DNS and are checked before the request.

use std::{
    env,
    error::Error,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::domain::allow_private::{AllowPrivate, Refused};

/// Where a proxy is named. Its address is the operator's word, and what it connects to is its own affair.
const PROXIES: [&str; 6] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Lets through what `allow_private` allows. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Guard {
    allowed: Arc<AllowPrivate>,
    proxies: Arc<[String]>,
}

impl Guard {
    /// A guard by this rule.
    pub fn new(allowed: AllowPrivate) -> Self {
        let proxies = PROXIES.iter().filter_map(|name| proxy_host(&env::var(name).ok()?)).collect();
        Self { allowed: Arc::new(allowed), proxies }
    }

    /// Checks the address that a URL holds in place of a name.
    pub fn check(&self, url: &Url) -> Result<(), Refused> {
        let address: IpAddr = match url.host() {
            Some(Host::Ipv4(address)) => address.into(),
            Some(Host::Ipv6(address)) => address.into(),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        self.allowed.check(&address.to_string(), address)
    }

    /// The addresses of `host` that may be connected to. Refused only where there is no other.
    fn sift(&self, host: &str, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Refused> {
        if self.proxies.iter().any(|proxy| proxy == host) {
            return Ok(found);
        }
        let mut refused = None;
        let mut allowed = Vec::with_capacity(found.len());
        for place in found {
            match self.allowed.check(host, place.ip()) {
                Ok(()) => allowed.push(place),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        match refused {
            Some(error) if allowed.is_empty() => Err(error),
            _ => Ok(allowed),
        }
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed = guard.sift(name.as_str(), found)?;
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// The refusal that an error comes from, where it is one.
pub fn refusal(error: &reqwest::Error) -> Option<&Refused> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(refused) = inner.downcast_ref() {
            return Some(refused);
        }
        cause = inner.source();
    }
    None
}

fn proxy_host(text: &str) -> Option<String> {
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    Url::parse(&with_scheme).ok()?.host_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(proxies: &[&str]) -> Guard {
        let proxies = proxies.iter().filter_map(|proxy| proxy_host(proxy)).collect();
        Guard { allowed: Arc::default(), proxies }
    }

    #[test]
    fn of_several_addresses_the_public_ones_are_left() {
        let places = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| format!("{text}:0").parse().unwrap()).collect()
        };
        let mixed = places(&["10.0.0.1", "1.1.1.1", "[::1]", "[2606:4700::1111]"]);
        let left = guard(&[]).sift("shop.example.com", mixed.clone());
        assert_eq!(left, Ok(places(&["1.1.1.1", "[2606:4700::1111]"])));
        assert_eq!(guard(&[]).sift("shop", mixed.clone()), Ok(mixed));
        assert!(guard(&[]).sift("shop.example.com", places(&["10.0.0.1", "[::1]"])).is_err());
        assert_eq!(guard(&[]).sift("shop.example.com", Vec::new()), Ok(Vec::new()));
    }

    #[test]
    fn a_proxy_may_be_anywhere() {
        let place: Vec<SocketAddr> = vec!["10.0.0.1:0".parse().unwrap()];
        for written in ["http://u:p@proxy.example.com:3128", "proxy.example.com:3128", "proxy.example.com"] {
            assert!(guard(&[written]).sift("proxy.example.com", place.clone()).is_ok(), "{written}");
            assert!(guard(&[written]).sift("shop.example.com", place.clone()).is_err(), "{written}");
        }
    }

    #[test]
    fn addresses_in_urls_are_checked_however_they_are_written() {
        for refused in [
            "http://169.254.169.254/",
            "http://0xa9fea9fe/",
            "http://[fe80::1]/",
            "http://[::ffff:a9fe:a9fe]/",
        ] {
            assert!(guard(&[]).check(&Url::parse(refused).unwrap()).is_err(), "{refused}");
        }
        for allowed in
            ["http://127.0.0.1:5678/", "http://[::1]/", "http://10.0.0.5/", "http://n8n/", "https://1.1.1.1/"]
        {
            assert!(guard(&[]).check(&Url::parse(allowed).unwrap()).is_ok(), "{allowed}");
        }
    }
}

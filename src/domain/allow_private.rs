//! Which addresses that are not public may be connected to. A host that is plainly local, as it is written,
//! may be at any of them; a public name may not, since whoever runs its DNS could point it at the machines
//! behind a firewall.

use core::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use url::Host;

use super::address_kind::AddressKind;

/// The ends of names that public DNS does not give out.
const LOCAL_ENDS: [&str; 6] = [".localhost", ".local", ".internal", ".lan", ".home.arpa", ".svc"];

/// What may be connected to beside public addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowPrivate {
    /// What a host that is plainly local leads to, except where clouds serve their credentials.
    #[default]
    Auto,
    /// Everything.
    Always,
    /// Nothing.
    Never,
    /// What `Auto` allows, and these places.
    Also(Vec<Place>),
}

/// A place that is allowed by name or by address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// All addresses of a network, whatever leads there.
    Net(IpNet),
    /// Whatever a host leads to, except where clouds serve their credentials.
    Host(String),
}

/// A text that names no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is neither a network, nor an address, nor the name of a host")]
pub struct NoPlace;

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        if let Ok(net) = text.parse::<IpNet>() {
            return Ok(Self::Net(net));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Net(IpNet::from(address)));
        }
        match Host::parse(text) {
            // A pattern would match nothing.
            Ok(Host::Domain(name)) if !name.contains('*') => Ok(Self::Host(plain(&name))),
            _ => Err(NoPlace),
        }
    }
}

/// A connection that is not allowed, and what to write where it is meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{host}` {leads} {kind}, which is not reached unless jobs.yaml allows it: {advice}")]
pub struct Refused {
    host: String,
    leads: String,
    kind: AddressKind,
    advice: String,
}

impl AllowPrivate {
    /// Whether `address` may be connected to, which `host` (a name, or an address without brackets) leads
    /// to.
    pub fn check(&self, host: &str, address: IpAddr) -> Result<(), Refused> {
        let (host, address) = (plain(host), address.to_canonical());
        let kind = AddressKind::of(address);
        let is_local = is_local(&host) && !kind.may_give_credentials();
        let is_allowed = kind == AddressKind::Public
            || match self {
                Self::Auto => is_local,
                Self::Always => true,
                Self::Never => false,
                Self::Also(places) => {
                    is_local || places.iter().any(|place| place.holds(&host, address, kind))
                }
            };
        if is_allowed { Ok(()) } else { Err(self.refused(host, address, kind)) }
    }

    fn refused(&self, host: String, address: IpAddr, kind: AddressKind) -> Refused {
        let written = if kind.may_give_credentials() { address.to_string() } else { host.clone() };
        let advice = match self {
            Self::Never => "it says `allow_private: false`".to_owned(),
            Self::Also(_) => format!("add \"{written}\" to its `allow_private`"),
            Self::Auto | Self::Always => format!("write `allow_private: [\"{written}\"]` at its top"),
        };
        let is_address = host.parse::<IpAddr>().is_ok();
        let leads = if is_address { "is".to_owned() } else { format!("leads to {address},") };
        Refused { host, leads, kind, advice }
    }
}

impl Place {
    fn holds(&self, host: &str, address: IpAddr, kind: AddressKind) -> bool {
        match self {
            Self::Net(net) => net.contains(&address),
            Self::Host(name) => name == host && !kind.may_give_credentials(),
        }
    }
}

/// An address, a name without dots such as a container's, or a name that public DNS does not give out.
fn is_local(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok() || !host.contains('.') || LOCAL_ENDS.iter().any(|end| host.ends_with(end))
}

fn plain(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn also(places: &[&str]) -> AllowPrivate {
        AllowPrivate::Also(places.iter().map(|place| place.parse().unwrap()).collect())
    }

    #[test]
    fn what_may_be_connected_to() {
        let nets = also(&["10.0.0.0/8", "fd00::/8", "169.254.169.254"]);
        let hosts = also(&["N8N.example.com."]);
        // host, address; allowed by auto, true, false, networks, hosts
        let cases = [
            ("n8n.example.com", "1.1.1.1", [true, true, true, true, true]),
            ("n8n.example.com", "10.0.0.5", [false, true, false, true, true]),
            ("N8N.Example.COM.", "10.0.0.5", [false, true, false, true, true]),
            ("n8n.example.com", "::ffff:10.0.0.5", [false, true, false, true, true]),
            ("n8n.example.com", "fd00::5", [false, true, false, true, true]),
            ("n8n.example.com", "127.0.0.1", [false, true, false, false, true]),
            ("n8n.example.com", "100.64.0.1", [false, true, false, false, true]),
            ("n8n.example.com", "224.0.0.1", [false, true, false, false, true]),
            ("n8n.example.com", "169.254.169.254", [false, true, false, true, false]),
            ("evil-n8n.example.com", "10.0.0.5", [false, true, false, true, false]),
            ("local", "10.0.0.5", [true, true, false, true, true]),
            ("notlocal.example", "192.168.1.2", [false, true, false, false, false]),
            ("n8n", "172.18.0.3", [true, true, false, true, true]),
            ("localhost", "127.0.0.1", [true, true, false, true, true]),
            ("localhost.", "::1", [true, true, false, true, true]),
            ("n8n.default.svc.cluster.local", "10.1.2.3", [true, true, false, true, true]),
            ("nas.lan", "192.168.1.2", [true, true, false, true, true]),
            ("metadata.google.internal", "169.254.169.254", [false, true, false, true, false]),
            ("metadata", "fd00:ec2::254", [false, true, false, true, false]),
            ("127.0.0.1", "127.0.0.1", [true, true, false, true, true]),
            ("10.0.0.5", "10.0.0.5", [true, true, false, true, true]),
            ("169.254.169.254", "169.254.169.254", [false, true, false, true, false]),
            ("fe80::1", "fe80::1", [false, true, false, false, false]),
        ];
        for (host, address, expected) in cases {
            let rules = [&AllowPrivate::Auto, &AllowPrivate::Always, &AllowPrivate::Never, &nets, &hosts];
            let found = rules.map(|rule| rule.check(host, address.parse().unwrap()).is_ok());
            assert_eq!(found, expected, "{host} at {address}");
        }
    }

    #[test]
    fn a_refusal_says_what_to_write() {
        let said = |rule: &AllowPrivate, host: &str, address: &str| {
            rule.check(host, address.parse().unwrap()).unwrap_err().to_string()
        };
        let auto = said(&AllowPrivate::Auto, "n8n.example.com", "10.0.0.5");
        assert_eq!(
            auto,
            "`n8n.example.com` leads to 10.0.0.5, a private address, which is not reached unless jobs.yaml allows it: \
             write `allow_private: [\"n8n.example.com\"]` at its top"
        );
        let listed = said(&also(&["192.168.0.0/16"]), "fe80::1", "fe80::1");
        assert!(listed.starts_with("`fe80::1` is a link-local address, "), "{listed}");
        assert!(listed.ends_with("add \"fe80::1\" to its `allow_private`"), "{listed}");
        let metadata = said(&AllowPrivate::Auto, "metadata.google.internal", "169.254.169.254");
        assert!(metadata.contains("`allow_private: [\"169.254.169.254\"]`"), "{metadata}");
        assert!(said(&AllowPrivate::Never, "localhost", "::1").ends_with("`allow_private: false`"));
    }

    #[test]
    fn what_a_refusal_says_to_write_helps() {
        for (host, address) in
            [("n8n.example.com", "10.0.0.5"), ("n8n.example.com", "169.254.1.1"), ("fe80::1", "fe80::1")]
        {
            let address = address.parse().unwrap();
            let said = AllowPrivate::Auto.check(host, address).unwrap_err().to_string();
            let written = said.split('"').nth(1).unwrap();
            assert!(also(&[written]).check(host, address).is_ok(), "{said}");
        }
    }

    #[test]
    fn a_place_is_a_network_an_address_or_a_host() {
        for good in ["10.0.0.0/8", "10.1.2.3/8", "::1", "fd00::/8", "n8n", "n8n.example.com", "žaba.hr"] {
            assert!(good.parse::<Place>().is_ok(), "{good}");
        }
        for bad in
            ["", "10.0.0.0/33", "https://n8n.example.com", "n8n.example.com:5678", "a b", "*.example.com"]
        {
            assert_eq!(bad.parse::<Place>(), Err(NoPlace), "{bad}");
        }
    }
}

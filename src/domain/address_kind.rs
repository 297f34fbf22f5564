//! What kind of network an IP address belongs to, by the IANA registries for special purposes: whether
//! connecting to it leads onto the internet, or into a network that outsiders have no business in.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;

/// The kind of network of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// The internet.
    Public,
    /// This machine. An unspecified address leads there too.
    Loopback,
    /// A network of somebody's own, that of a carrier included.
    Private,
    /// This link alone. Clouds serve their credentials at 169.254.169.254.
    LinkLocal,
    /// Where clouds serve their credentials beside that.
    Metadata,
    /// No place where a server of the internet stands: documentation, benchmarks, multicast, the future.
    Reserved,
}

impl AddressKind {
    /// The kind of an address. One that carries an IPv4 address counts as that one.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }

    /// Whether clouds give out credentials there, so that a slip costs more than a page of nonsense.
    pub const fn may_give_credentials(self) -> bool {
        matches!(self, Self::LinkLocal | Self::Metadata)
    }
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "a public address",
            Self::Loopback => "an address of this machine",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "an address of a cloud's metadata",
            Self::Reserved => "a reserved address",
        })
    }
}

fn of_v4(address: Ipv4Addr) -> AddressKind {
    match address.octets() {
        [0, 0, 0, 0] | [127, ..] => AddressKind::Loopback,
        // Alibaba's, Oracle's and Azure's.
        [100, 100, 100, 200] | [192, 0, 0, 192] | [168, 63, 129, 16] => AddressKind::Metadata,
        [169, 254, ..] => AddressKind::LinkLocal,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => AddressKind::Private,
        [0 | 224..=255, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18..=19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => AddressKind::Reserved,
        _ => AddressKind::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> AddressKind {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => AddressKind::Loopback,
        // IPv4 mapped, compatible, translated (NAT64) and by 6to4.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => of_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))),
        // Amazon's and Google's.
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => AddressKind::Metadata,
        [0xfe80..=0xfebf, ..] => AddressKind::LinkLocal,
        [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] | [0x64, 0xff9b, 1, ..] => AddressKind::Private,
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => AddressKind::Reserved,
        [0x2000..=0x3fff, ..] => AddressKind::Public,
        _ => AddressKind::Reserved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_has_its_kind() {
        let cases = [
            (
                AddressKind::Public,
                &["1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "128.0.0.1"][..],
            ),
            (
                AddressKind::Public,
                &["172.15.255.255", "172.32.0.0", "192.167.0.1", "192.0.1.1", "223.255.255.255"],
            ),
            (AddressKind::Public, &["2606:4700::1111", "2001:200::1", "64:ff9b::1.1.1.1", "::ffff:8.8.8.8"]),
            (AddressKind::Public, &["2002:808:808::1", "3ffe::1", "2a00:1450::1"]),
            (AddressKind::Loopback, &["127.0.0.1", "127.255.255.255", "0.0.0.0", "::1", "::"]),
            (AddressKind::Loopback, &["::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"]),
            (
                AddressKind::Private,
                &["10.0.0.0", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.1.1"],
            ),
            (AddressKind::Private, &["100.64.0.0", "100.127.255.255", "fc00::1", "fdff::1", "fec0::1"]),
            (
                AddressKind::Private,
                &["::ffff:10.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::1", "2002:c0a8:101::1"],
            ),
            (AddressKind::LinkLocal, &["169.254.169.254", "169.254.0.0", "fe80::1", "febf::1"]),
            (AddressKind::LinkLocal, &["::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"]),
            (AddressKind::Metadata, &["100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"]),
            (AddressKind::Metadata, &["168.63.129.16", "::ffff:168.63.129.16"]),
            (AddressKind::Public, &["168.63.129.15", "168.63.129.17"]),
            (AddressKind::Reserved, &["0.0.0.1", "192.0.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.255"]),
            (
                AddressKind::Reserved,
                &["198.18.0.1", "198.19.255.255", "192.88.99.1", "224.0.0.1", "240.0.0.1"],
            ),
            (AddressKind::Reserved, &["255.255.255.255", "ff02::1", "2001:db8::1", "3fff:fff::1", "100::1"]),
            (AddressKind::Reserved, &["2001::1", "2001:1ff::1", "4000::1", "::ffff:224.0.0.1"]),
        ];
        for (kind, addresses) in cases {
            for address in addresses {
                assert_eq!(AddressKind::of(address.parse().unwrap()), kind, "{address}");
            }
        }
    }
}

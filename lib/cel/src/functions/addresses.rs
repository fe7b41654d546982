//! IP addresses and blocks: Kubernetes' libraries `net.ip` and `net.cidr`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{
    error::EvaluationError,
    meter::{Meter, size, tenths},
    overload::{Row, mistyped, one, read_first, read_first_twice},
    value::{Cidr, Outcome, Value},
};

pub(crate) const ROWS: &[Row] = &[
    ("ip(string) -> IP", read_first, ip),
    ("isIP(string) -> bool", read_first, is_ip),
    ("ip.isCanonical(string) -> bool", read_first_twice, is_canonical),
    ("family(self IP) -> int", one, family),
    ("isUnspecified(self IP) -> bool", one, is_unspecified),
    ("isLoopback(self IP) -> bool", one, is_loopback),
    ("isLinkLocalMulticast(self IP) -> bool", one, is_link_local_multicast),
    ("isLinkLocalUnicast(self IP) -> bool", one, is_link_local_unicast),
    ("isGlobalUnicast(self IP) -> bool", one, is_global_unicast),
    ("cidr(string) -> CIDR", read_first, cidr),
    ("isCIDR(string) -> bool", read_first, is_cidr),
    ("ip(self CIDR) -> IP", one, address_of),
    ("prefixLength(self CIDR) -> int", one, prefix_length),
    ("masked(self CIDR) -> CIDR", one, masked),
    ("containsIP(self CIDR, string) -> bool", contains_cost, contains_ip),
    ("containsIP(self CIDR, IP) -> bool", contains_cost, contains_ip),
    ("containsCIDR(self CIDR, string) -> bool", contains_block_cost, contains_cidr),
    ("containsCIDR(self CIDR, CIDR) -> bool", contains_block_cost, contains_cidr),
];

/// Bytes of the prefix of a block.
fn width(value: Option<&Value<'_>>) -> u64 {
    match value {
        Some(Value::Cidr(block)) => u64::from(block.prefix.div_ceil(8)),
        _ => 1,
    }
}

fn text_cost(meter: &mut Meter, value: Option<&Value<'_>>) -> Result<u64, EvaluationError> {
    match value {
        Some(text @ Value::String(_)) => Ok(tenths(size(text, meter)?)),
        _ => Ok(0),
    }
}

fn contains_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    Ok(tenths(2 * width(arguments.first())) + text_cost(meter, arguments.get(1))?)
}

fn contains_block_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    result: &Value<'_>,
) -> Result<u64, EvaluationError> {
    Ok(contains_cost(meter, arguments, result)? + tenths(width(arguments.first())) + 1)
}

/// An address without zone that is no IPv4 address in IPv6.
fn parse_ip(text: &str) -> Result<IpAddr, EvaluationError> {
    let address = text.parse::<IpAddr>().ok().filter(|address| !is_mapped(address));
    address.ok_or_else(|| {
        EvaluationError::invalid(format!(
            "IP Address \"{text}\" parse error during conversion from string"
        ))
    })
}

fn is_mapped(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

fn parse_cidr(text: &str) -> Result<Cidr, EvaluationError> {
    let parse = || {
        let (address, length) = text.rsplit_once('/')?;
        let address = parse_ip(address).ok()?;
        let is_plain = length.bytes().all(|b| b.is_ascii_digit())
            && (length.len() == 1 || !length.starts_with('0'));
        let prefix = length.parse().ok().filter(|n: &u8| is_plain && *n <= bits(&address))?;
        Some(Cidr { address, prefix })
    };
    parse().ok_or_else(|| {
        EvaluationError::invalid(format!(
            "network address parse error during conversion from string: \"{text}\""
        ))
    })
}

const fn bits(address: &IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The text of an address as Go writes it: never with a dotted part in IPv6.
pub(crate) fn address_text(address: &IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => v6_text(address),
    }
}

/// RFC 5952: the longest run of zeros, of at least two, is left out; the first one of equal runs.
fn v6_text(address: &Ipv6Addr) -> String {
    let segments = address.segments();
    let run = |from: usize| segments[from..].iter().take_while(|segment| **segment == 0).count();
    let (start, length) = (0..8)
        .map(|from| (from, run(from)))
        .filter(|(_, length)| *length >= 2)
        .fold((8, 0), |best, this| if this.1 > best.1 { this } else { best });
    let hexadecimal = |part: &[u16]| {
        part.iter().map(|segment| format!("{segment:x}")).collect::<Vec<_>>().join(":")
    };
    if length == 0 {
        return hexadecimal(&segments);
    }
    format!("{}::{}", hexadecimal(&segments[..start]), hexadecimal(&segments[start + length..]))
}

fn ip<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => parse_ip(text).map(Value::Ip),
        _ => mistyped(),
    }
}

fn is_ip<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => Ok(Value::Bool(parse_ip(text).is_ok())),
        _ => mistyped(),
    }
}

fn is_canonical<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => Ok(Value::Bool(address_text(&parse_ip(text)?) == **text)),
        _ => mistyped(),
    }
}

fn family<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Ip(IpAddr::V4(_))] => Ok(Value::Int(4)),
        [Value::Ip(IpAddr::V6(_))] => Ok(Value::Int(6)),
        _ => mistyped(),
    }
}

fn property<'a>(
    arguments: &[Value<'a>],
    of_v4: fn(&Ipv4Addr) -> bool,
    of_v6: fn(&Ipv6Addr) -> bool,
) -> Outcome<'a> {
    match arguments {
        [Value::Ip(IpAddr::V4(address))] => Ok(Value::Bool(of_v4(address))),
        [Value::Ip(IpAddr::V6(address))] => Ok(Value::Bool(of_v6(address))),
        _ => mistyped(),
    }
}

fn is_unspecified<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    property(arguments, Ipv4Addr::is_unspecified, Ipv6Addr::is_unspecified)
}

fn is_loopback<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    property(arguments, Ipv4Addr::is_loopback, Ipv6Addr::is_loopback)
}

fn is_link_local_multicast<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    property(
        arguments,
        |address| matches!(address.octets(), [224, 0, 0, _]),
        |address| address.segments()[0] & 0xff0f == 0xff02,
    )
}

fn is_link_local_unicast<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    property(arguments, Ipv4Addr::is_link_local, Ipv6Addr::is_unicast_link_local)
}

/// Go's meaning: everything that is nothing special, private addresses included.
fn is_global_unicast<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    property(
        arguments,
        |address| {
            !(address.is_unspecified()
                || address.is_broadcast()
                || address.is_loopback()
                || address.is_multicast()
                || address.is_link_local())
        },
        |address| {
            !(address.is_unspecified()
                || address.is_loopback()
                || address.is_multicast()
                || address.is_unicast_link_local())
        },
    )
}

fn cidr<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => parse_cidr(text).map(Value::Cidr),
        _ => mistyped(),
    }
}

fn is_cidr<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => Ok(Value::Bool(parse_cidr(text).is_ok())),
        _ => mistyped(),
    }
}

fn address_of<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Cidr(block)] => Ok(Value::Ip(block.address)),
        _ => mistyped(),
    }
}

fn prefix_length<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Cidr(block)] => Ok(Value::Int(block.prefix.into())),
        _ => mistyped(),
    }
}

/// `address` with the bits behind the first `prefix` ones cleared.
fn mask(address: &IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

fn masked<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Cidr(block)] => {
            let address = mask(&block.address, block.prefix);
            Ok(Value::Cidr(Cidr { address, prefix: block.prefix }))
        }
        _ => mistyped(),
    }
}

fn contains(block: &Cidr, address: &IpAddr) -> bool {
    block.address.is_ipv4() == address.is_ipv4()
        && mask(&block.address, block.prefix) == mask(address, block.prefix)
}

fn contains_ip<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Cidr(block), Value::Ip(address)] => Ok(Value::Bool(contains(block, address))),
        [Value::Cidr(block), Value::String(text)] => {
            Ok(Value::Bool(contains(block, &parse_ip(text)?)))
        }
        _ => mistyped(),
    }
}

fn contains_cidr<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (block, other) = match arguments {
        [Value::Cidr(block), Value::Cidr(other)] => (block, *other),
        [Value::Cidr(block), Value::String(text)] => (block, parse_cidr(text)?),
        _ => return mistyped(),
    };
    let is_within = block.prefix <= other.prefix && contains(block, &other.address);
    Ok(Value::Bool(is_within))
}

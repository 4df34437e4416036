//! Every way to write an address that must not be reached.

use super::*;

fn rules(allow: &[&str], loopback: bool) -> AddressRules {
    let allow: Vec<String> = allow.iter().map(|&entry| entry.to_owned()).collect();
    AddressRules::new(&allow, loopback).expect("entries")
}

fn goes(rules: &AddressRules, url: &str) -> bool {
    rules.target(url).is_ok()
}

#[test]
fn every_spelling_of_a_local_address_is_refused() {
    let rules = rules(&[], false);
    for host in [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "127.255.255.254",
        "127.0.0.1.",
        "0x7f.1",
        "0x7f000001",
        "0x7F.0X0.0.0x1",
        "0177.0.0.1",
        "0177.1",
        "017700000001",
        "2130706433",
        "127.0.0.0x1",
        "%31%32%37.0.0.1",
        "１２７.0.0.1",
        "127。0。0。1",
        "①②⑦.0.0.1",
        "0.0.0.0",
        "0",
        "0x0",
        "0.1.2.3",
        "10.0.0.1",
        "012.0.0.1",
        "10.1",
        "167772161",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "192.168.257",
        "0xc0a80001",
        "100.64.0.1",
        "100.127.255.255",
        "100.100.100.200",
        "169.254.0.1",
        "169.254.169.254",
        "0xa9fea9fe",
        "2852039166",
        "0251.0376.0251.0376",
        "168.63.129.16",
        "192.0.0.192",
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.7",
        "203.0.113.9",
        "192.88.99.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "[::]",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::127.0.0.1]",
        "[::7f00:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::FFFF:10.0.0.1]",
        "[::ffff:169.254.169.254]",
        "[::ffff:8.8.8.8]",
        "[64:ff9b::10.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::1]",
        "[fc00::1]",
        "[fd12:3456::1]",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "[febf::1]",
        "[fec0::1]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[2001::1]",
        "[2002:7f00:1::]",
        "[100::1]",
        "[3fff::1]",
        "[4000::1]",
    ] {
        for url in [format!("http://{host}/"), format!("https://{host}:8080/x")] {
            assert!(!goes(&rules, &url), "{url}");
        }
    }
}

#[test]
fn userinfo_and_odd_schemes_do_not_hide_the_host() {
    let rules = rules(&["hooks.example"], false);
    for url in [
        "http://hooks.example@127.0.0.1/",
        "http://hooks.example:80@10.0.0.1/",
        "http://a:b@[::1]/",
        "http:\\\\127.0.0.1\\",
        "http:/127.0.0.1/",
        "http:127.0.0.1",
        "http://127.0.0.1\\@hooks.example/",
        "ht\ntp://127.0.0.1/",
        " http://127.0.0.1/",
        "file:///etc/passwd",
        "gopher://8.8.8.8/",
        "data:text/plain,x",
        "ftp://8.8.8.8/",
        "ws://8.8.8.8/",
        "javascript:1",
        "unix:/run/x",
        "//8.8.8.8/",
        "8.8.8.8",
        "",
        "http://",
        "http://[fe80::1%25eth0]/",
        "http://256.1.1.1/",
        "http://1.2.3.4.5/",
        "http://a b/",
        "http://8.8.8.8:99999/",
        "http://08.8.8.8/",
    ] {
        assert!(!goes(&rules, url), "{url}");
    }
}

#[test]
fn public_addresses_and_names_pass_the_first_look() {
    let rules = rules(&[], false);
    for host in [
        "8.8.8.8",
        "1.1.1.1",
        "172.32.0.1",
        "100.128.0.1",
        "[2606:4700::1111]",
        "[64:ff9b::808:808]",
        "hooks.example",
        "hooks.example.",
        "bücher.example",
        "localhost",
    ] {
        assert!(goes(&rules, &format!("https://{host}/a?b#c")), "{host}");
    }
}

#[test]
fn loopback_can_be_allowed_and_nothing_else_with_it() {
    let rules = rules(&[], true);
    for host in ["127.0.0.1", "127.9.9.9", "[::1]", "2130706433"] {
        assert!(goes(&rules, &format!("http://{host}/")), "{host}");
    }
    for host in ["0.0.0.0", "[::]", "10.0.0.1", "169.254.169.254"] {
        assert!(!goes(&rules, &format!("http://{host}/")), "{host}");
    }
}

#[test]
fn listed_ranges_hosts_and_ports_are_allowed_exactly() {
    let rules = rules(
        &[
            "10.1.0.0/16",
            "192.168.7.7",
            "fd00::/8",
            "172.16.0.1:8080",
            "[fe80::1]:80",
        ],
        false,
    );
    for url in [
        "http://10.1.2.3/",
        "http://0xa010203/",
        "http://[::ffff:10.1.2.3]/",
        "http://192.168.7.7:99/",
        "http://[fd12::1]/",
        "http://172.16.0.1:8080/",
        "http://[fe80::1]/",
    ] {
        assert!(goes(&rules, url), "{url}");
    }
    for url in [
        "http://10.2.0.1/",
        "http://192.168.7.8/",
        "http://[fc00::1]/",
        "http://172.16.0.1/",
        "http://172.16.0.1:8081/",
        "http://[fe80::1]:81/",
        "http://[fe80::2]/",
    ] {
        assert!(!goes(&rules, url), "{url}");
    }
}

#[test]
fn the_unspecified_address_cannot_be_listed() {
    let rules = rules(&["0.0.0.0/0", "::/0"], true);
    assert!(goes(&rules, "http://10.0.0.1/"));
    assert!(goes(&rules, "http://[fe80::1]/"));
    for host in ["0.0.0.0", "0.0.0.1", "[::]", "224.0.0.1", "[ff02::1]"] {
        assert!(!goes(&rules, &format!("http://{host}/")), "{host}");
    }
}

#[test]
fn host_names_compare_without_case_and_final_dot() {
    let rules = rules(&["Intranet.Example", "hooks.example:8080"], false);
    assert!(rules.lists("intranet.example.", 1));
    assert!(rules.lists("hooks.example", 8080));
    assert!(!rules.lists("hooks.example", 80));
    assert!(!rules.lists("a.intranet.example", 1));
}

#[test]
fn entries_that_cannot_be_read_are_errors() {
    for entry in [
        "",
        "10.0.0.0/33",
        "::/129",
        "10.0.0.0/",
        "a/b",
        "a:b",
        "a:99999",
        "a@b",
        "a b",
        "http://a",
    ] {
        let refused = AddressRules::new(&[entry.to_owned()], false);
        assert_eq!(
            refused.map(drop),
            Err(AllowlistEntryError(entry.to_owned())),
            "{entry}"
        );
    }
}

//! The servers of an address, each by itself: the first one that answers as it should is used.
//!
//! The client tries them one after the other, and waits long for one whose machine is lost or cut off,
//! since that does not answer at all. An owner cannot wait that long.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, Error};

/// The time that a server of an address has before the next one is asked, too.
const HEAD_START: Duration = Duration::from_millis(250);

/// Connects to one of the servers of an address: the earliest in it, unless that fails or is slow.
pub(crate) async fn connect_to_any<F>(
    config: &Config,
    connect: impl Fn(Config) -> F,
) -> Result<Client, Error>
where
    F: Future<Output = Result<Client, Error>> + Send + 'static,
{
    let mut servers = each(config).into_iter();
    let Some(first) = servers.next() else {
        // The client says what is missing.
        return connect(config.clone()).await;
    };
    let mut attempts = JoinSet::from_iter([connect(first)]);
    let mut refusal = None;
    loop {
        match timeout(HEAD_START, attempts.join_next()).await {
            Ok(Some(Ok(Ok(client)))) => return Ok(client),
            Ok(Some(Ok(Err(error)))) => refusal = Some(error),
            Ok(Some(Err(_)) | None) | Err(_) => {}
        }
        match (servers.next(), refusal.take_if(|_| attempts.is_empty())) {
            (Some(next), _) => drop(attempts.spawn(connect(next))),
            (None, Some(error)) => return Err(error),
            (None, None) => {}
        }
    }
}

/// What connects to each of the servers alone; nothing if they do not have an address and a port each.
fn each(config: &Config) -> Vec<Config> {
    let (hosts, addresses, ports) = (
        config.get_hosts(),
        config.get_hostaddrs(),
        config.get_ports(),
    );
    let count = hosts.len().max(addresses.len());
    let fits = |length: usize| length == 0 || length == count;
    if !fits(hosts.len()) || !fits(addresses.len()) || !(ports.len() == 1 || fits(ports.len())) {
        return Vec::new();
    }
    let one = |at| {
        let mut one = without_servers(config);
        match hosts.get(at) {
            Some(Host::Tcp(name)) => drop(one.host(name)),
            Some(Host::Unix(folder)) => drop(one.host_path(folder)),
            None => {}
        }
        if let Some(address) = addresses.get(at) {
            one.hostaddr(*address);
        }
        if let Some(port) = ports.get(at).or(ports.first()) {
            one.port(*port);
        }
        one
    };
    (0..count).map(one).collect()
}

/// Everything of an address but its servers.
fn without_servers(config: &Config) -> Config {
    let mut copy = Config::new();
    copy.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .target_session_attrs(config.get_target_session_attrs())
        .load_balance_hosts(config.get_load_balance_hosts())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle());
    if let Some(user) = config.get_user() {
        copy.user(user);
    }
    if let Some(password) = config.get_password() {
        copy.password(password);
    }
    if let Some(database) = config.get_dbname() {
        copy.dbname(database);
    }
    if let Some(options) = config.get_options() {
        copy.options(options);
    }
    if let Some(name) = config.get_application_name() {
        copy.application_name(name);
    }
    if let Some(limit) = config.get_connect_timeout() {
        copy.connect_timeout(*limit);
    }
    if let Some(limit) = config.get_tcp_user_timeout() {
        copy.tcp_user_timeout(*limit);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        copy.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        copy.keepalives_retries(retries);
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_of_an_address_has_everything_else_of_it() {
        let rest = "ktsu:secret@HOST/work?application_name=ktsu&options=-ca%3Db&sslmode=require\
                    &sslnegotiation=direct&channel_binding=require&connect_timeout=3&tcp_user_timeout=4\
                    &keepalives=0&keepalives_idle=5&keepalives_interval=6&keepalives_retries=7\
                    &target_session_attrs=read-only&load_balance_hosts=random";
        let of = |hosts: &str| -> Config {
            let address = format!("postgres://{}", rest.replace("HOST", hosts));
            address.parse().unwrap()
        };
        assert_eq!(each(&of("one")), [of("one")]);
        assert_eq!(each(&of("one:1,%2Frun:2")), [of("one:1"), of("%2Frun:2")]);
        let both: Config = "host=one,two hostaddr=192.0.2.1,192.0.2.2 port=7"
            .parse()
            .unwrap();
        let alone: Config = "host=two hostaddr=192.0.2.2 port=7".parse().unwrap();
        assert_eq!(each(&both).get(1), Some(&alone));
        let unequal: Config = "host=one,two hostaddr=192.0.2.1".parse().unwrap();
        assert_eq!(each(&unequal), []);
    }
}

//! The dashboard in Chromium, with real encoders, servers and wallets around the service.

mod live;
mod pages;
mod work;

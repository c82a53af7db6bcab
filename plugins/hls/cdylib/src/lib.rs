//! The loadable library of the hls driver.

satcast_plugin_api::export_driver!(satcast_driver_hls::Hls);

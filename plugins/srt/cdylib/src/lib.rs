//! The loadable library of the srt driver.

satcast_plugin_api::export_driver!(satcast_driver_srt::Srt);

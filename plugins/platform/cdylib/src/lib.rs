//! The loadable library of the platform driver.

satcast_plugin_api::export_driver!(satcast_driver_platform::Platforms);

//! The loadable library of the archive driver.

satcast_plugin_api::export_driver!(satcast_driver_archive::Archive);

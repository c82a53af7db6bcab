//! The loadable library of the rtmp driver.

satcast_plugin_api::export_driver!(satcast_driver_rtmp::Rtmp);

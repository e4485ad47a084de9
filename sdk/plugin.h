#pragma once

#include "absl/status/status.h"
#include "sdk/build_tag.h"
#include "sdk/catalogue.h"

namespace macaw::sdk {

// The one thing a plug-in exports. The tag comes first and is read before anything else, so that a
// plug-in of another release, compiler or library is turned away instead of half understood.
struct PluginEntry {
  const char* build_tag;
  const char* name;
  const char* version;
  absl::Status (*contribute)(Catalogue& catalogue);
};

}  // namespace macaw::sdk

// MACAW_PLUGIN("moon", "1.0", Contribute) once in a plug-in, outside any namespace.
#define MACAW_PLUGIN(plugin_name, plugin_version, plugin_contribute)                       \
  extern "C" __attribute__((visibility("default"))) const macaw::sdk::PluginEntry*         \
  macaw_plugin() {                                                                         \
    static constexpr macaw::sdk::PluginEntry kEntry = {MACAW_BUILD_TAG, plugin_name,       \
                                                       plugin_version, plugin_contribute}; \
    return &kEntry;                                                                        \
  }

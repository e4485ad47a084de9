#pragma once

#include "absl/status/status.h"
#include "core/build_tag.h"
#include "sdk/catalogue.h"

namespace macaw::sdk {

// The only symbol that a plug-in exports. The tag comes first and is checked before anything else
// is read, so a plug-in built for another release, compiler or library is refused.
struct PluginEntry {
  const char* build_tag;
  const char* name;
  const char* version;
  absl::Status (*contribute)(Catalogue& catalogue);
};

}  // namespace macaw::sdk

// Write MACAW_PLUGIN("heron", "1.0", Contribute) once in a plug-in, outside any namespace.
#define MACAW_PLUGIN(plugin_name, plugin_version, plugin_contribute)                       \
  extern "C" __attribute__((visibility("default"))) const macaw::sdk::PluginEntry*         \
  macaw_plugin() {                                                                         \
    static constexpr macaw::sdk::PluginEntry kEntry = {MACAW_BUILD_TAG, plugin_name,       \
                                                       plugin_version, plugin_contribute}; \
    return &kEntry;                                                                        \
  }

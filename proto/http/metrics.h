#pragma once

#include <string>

#include "proto/admin/status.h"

namespace macaw::http {

// The status in Prometheus' text format. The names are listed in deploy/README.md.
std::string MetricsText(const admin::RunStatus& status);

}  // namespace macaw::http

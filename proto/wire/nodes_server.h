#pragma once

#include <grpcpp/impl/codegen/service_type.h>

#include <memory>

#include "proto/wire/gate.h"

namespace macaw::wire {

// The calls of operators that concern the nodes of the fleet: what `macaw pki` does, for those who
// are not at the authority's machine. Operators themselves are out of their reach.
std::unique_ptr<grpc::Service> MakeNodesService(std::shared_ptr<Gate> gate);

}  // namespace macaw::wire

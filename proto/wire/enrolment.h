#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <utility>

#include "core/executor.h"
#include "macaw/v1/fleet.grpc.pb.h"
#include "proto/wire/gate.h"

namespace macaw::wire {

// The server's half of enrolment. Signing and the registry's file are the executor's work.
class EnrolmentService final : public v1::Enrolment::CallbackService {
 public:
  explicit EnrolmentService(std::shared_ptr<Gate> gate)
      : gate_(std::move(gate)), executor_("enrolment", 1) {}

  grpc::ServerUnaryReactor* Enrol(grpc::CallbackServerContext* context,
                                  const v1::EnrolRequest* request, v1::EnrolReply* reply) override;
  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context,
                                  const v1::RenewRequest* request, v1::EnrolReply* reply) override;

 private:
  const std::shared_ptr<Gate> gate_;
  Executor executor_;  // destroyed first
};

// Looks at each call that the gate has let in: tells the gate's guard whose connection it came
// over, and enters it in the audit log if it is refused.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> WatchCalls(
    std::shared_ptr<Gate> gate);

}  // namespace macaw::wire

#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "core/executor.h"
#include "macaw/v1/fleet.grpc.pb.h"
#include "proto/fleet/link.h"
#include "proto/wire/convert.h"
#include "proto/wire/intake.h"
#include "proto/wire/refusal.h"
#include "proto/wire/remote.h"
#include "proto/wire/upload_store.h"

// The server's half of the API: handlers convert and call the FleetHandler, nothing else. Bulk data
// by raw bytes.
namespace macaw::wire {

// One unary RPC, which ends once: by its answer, by a refusal, or because the client (or the
// server) has gone. Whoever wins End() calls Finish; until then gRPC keeps the RPC, its request and
// its response alive, afterwards nobody touches them.
class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  void OnCancel() override {
    if (Win(*over_)) Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller has gone"));
  }
  void OnDone() override { delete this; }

  // What others hold instead of the call: may be used after the RPC has ended, and then does
  // nothing. Copyable.
  class Handle {
   public:
    explicit Handle(UnaryCall* call) : call_(call), over_(call->over_) {}
    // `fill` writes the response; it runs only if the RPC is still open. Whether it was.
    template <typename F>
    bool End(F&& fill) const {
      if (!Win(*over_)) return false;
      const absl::Status status = fill();
      call_->Finish(ToGrpc(status));
      return true;
    }
    void Refuse(const absl::Status& status) const {
      End([&] { return status; });
    }
    bool over() const { return over_->load(); }

   private:
    UnaryCall* call_;
    std::shared_ptr<std::atomic<bool>> over_;
  };

 private:
  static bool Win(std::atomic<bool>& over) { return !over.exchange(true); }
  const std::shared_ptr<std::atomic<bool>> over_ = std::make_shared<std::atomic<bool>>(false);
};

// Outlives the service when a handler answers late. `executor` is the last member: it is drained
// before the rest goes.
struct ServiceState {
  ServiceState(const ServerOptions& server_options, fleet::FleetHandler& fleet_handler);

  const ServerOptions options;
  const bool share;  // memory with the callers
  fleet::FleetHandler& handler;
  UploadStore uploads;
  Intake registrations, commits;  // that are being read
  Executor executor;  // large messages, hashing, setting memory aside: what must not run on an RPC
                      // thread
};

// By the token in the call's metadata. Never null.
fleet::CallerPtr CallerOf(const ServiceState& state, const grpc::CallbackServerContext& context);

// What comes in a session, and whoever registers, is looked at as bytes first (outline.h).
using FleetServiceBase =
    v1::Fleet::WithCallbackMethod_Hello<v1::Fleet::WithRawCallbackMethod_Register<
        v1::Fleet::WithRawCallbackMethod_Lease<v1::Fleet::WithRawCallbackMethod_Heartbeat<
            v1::Fleet::WithRawCallbackMethod_Download<v1::Fleet::WithCallbackMethod_BeginUpload<
                v1::Fleet::WithRawCallbackMethod_Upload<v1::Fleet::WithRawCallbackMethod_Commit<
                    v1::Fleet::WithRawCallbackMethod_Release<v1::Fleet::Service>>>>>>>>>;

class FleetService final : public FleetServiceBase {
 public:
  explicit FleetService(std::shared_ptr<ServiceState> state) : state_(std::move(state)) {}

  using Context = grpc::CallbackServerContext;
  grpc::ServerUnaryReactor* Hello(Context*, const v1::HelloRequest* request,
                                  v1::HelloReply* reply) override;
  grpc::ServerUnaryReactor* Register(Context*, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Lease(Context*, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Heartbeat(Context*, const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* BeginUpload(Context*, const v1::BeginUploadRequest* request,
                                        v1::BeginUploadReply* reply) override;
  grpc::ServerUnaryReactor* Commit(Context*, const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Release(Context*, const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* reply) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Download(Context*,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* Upload(Context*, grpc::ByteBuffer* reply) override;

 private:
  const std::shared_ptr<ServiceState> state_;
};

}  // namespace macaw::wire

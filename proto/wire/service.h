#pragma once

#include <memory>
#include <utility>

#include "core/executor.h"
#include "macaw/v1/fleet.grpc.pb.h"
#include "proto/fleet/link.h"
#include "proto/wire/convert.h"
#include "proto/wire/download_turns.h"
#include "proto/wire/gate.h"
#include "proto/wire/intake.h"
#include "proto/wire/open_downloads.h"
#include "proto/wire/remote.h"
#include "proto/wire/unary_call.h"
#include "proto/wire/upload_store.h"

// The server's half of the API. RPC handlers only convert messages and call the FleetHandler. Bulk
// data moves as raw bytes.
namespace macaw::wire {

// Outlives the service when a handler answers late. `executor` is the last member, so its tasks end
// before the other members are destroyed.
struct ServiceState {
  // `server_gate`: null where callers are known by their tokens, or not at all. `partials`: of
  // uploads; may be null.
  ServiceState(const ServerOptions& server_options, std::shared_ptr<Gate> server_gate,
               std::unique_ptr<PartialFiles> partials, fleet::FleetHandler& fleet_handler);

  const ServerOptions options;
  const bool share;  // whether memory is shared with callers
  const InlineBytes inline_bytes;
  const uint64_t max_inline;  // of a blob that is sent inside a message
  const std::shared_ptr<Gate> gate;
  fleet::FleetHandler& handler;
  const std::shared_ptr<Answers> answers = std::make_shared<Answers>();
  UploadStore uploads;
  OpenDownloads downloads;
  DownloadTurns turns;
  Intake registrations, commits;  // requests that are being read
  Executor executor;  // for what must not run on an RPC thread: large messages, hashing, allocating
};

// The caller, by the certificate of the connection or the token in the metadata of the call. Never
// null.
fleet::CallerPtr CallerOf(const ServiceState& state, const grpc::CallbackServerContext& context);

// Stands for a caller where there is no session yet: a node registers, and uploads its table, once
// at a time, and no other node reaches what it brings. Unguessable from outside. 0: it has no name.
SessionId CallerNumber(const fleet::Caller& caller);

// All methods are raw: the bytes of registrations and of calls in a session are checked before they
// are parsed (outline.h).
// clang-format off
#define MACAW_OPEN(Name) v1::Fleet::WithRawCallbackMethod_##Name<
#define MACAW_CLOSE(Name) >
using FleetServiceBase =
    MACAW_FLEET_CALLS(MACAW_OPEN) MACAW_OPEN(BeginUpload) MACAW_OPEN(Download) MACAW_OPEN(Upload)
    v1::Fleet::Service
    >>> MACAW_FLEET_CALLS(MACAW_CLOSE);
#undef MACAW_OPEN
#undef MACAW_CLOSE
// clang-format on

class FleetService final : public FleetServiceBase {
 public:
  explicit FleetService(std::shared_ptr<ServiceState> state) : state_(std::move(state)) {}

  using Context = grpc::CallbackServerContext;
#define MACAW_METHOD(Name)                                                        \
  grpc::ServerUnaryReactor* Name(Context* context, const grpc::ByteBuffer* bytes, \
                                 grpc::ByteBuffer* reply) override;
  MACAW_FLEET_CALLS(MACAW_METHOD)
  MACAW_METHOD(BeginUpload)
#undef MACAW_METHOD
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Download(Context*,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* Upload(Context*, grpc::ByteBuffer* reply) override;

 private:
  const std::shared_ptr<ServiceState> state_;
};

}  // namespace macaw::wire

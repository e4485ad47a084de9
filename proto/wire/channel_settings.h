#pragma once

#include <grpc/grpc.h>

#include <utility>
#include <vector>

#include "proto/wire/address.h"
#include "proto/wire/limits.h"
#include "proto/wire/proxy.h"

// Every gRPC setting that we make, with its reason. All values are integers.
namespace macaw::wire {

using ChannelSettings = std::vector<std::pair<const char*, int>>;

// What both sides set.
inline ChannelSettings CommonSettings() {
  return {
      // The defaults, written down: nothing larger than 4 MiB is ever one message.
      {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, static_cast<int>(kMaxMessageBytes)},
      // A chunk in one HTTP/2 frame instead of 64: fewer slices to copy from.
      {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 2 << 20},
      // Bulk data fills the window at once instead of growing it by probing.
      {GRPC_ARG_HTTP2_BDP_PROBE, 0},
      {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20},
      // A connection keeps memory for the next read as large as its reads were. Larger reads move
      // bulk data no faster (RemoteBlob.Moves64MiBBothWays) and cost a server 60 kB a device.
      {GRPC_ARG_TCP_READ_CHUNK_SIZE, 16 << 10},
      {GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, 4 << 10},
      {GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 64 << 10},
      {GRPC_ARG_ENABLE_CENSUS, 0},
      {GRPC_ARG_ENABLE_CHANNELZ, 0},
      // Pings find a dead peer while a long poll waits. Both sides set this: a server closes
      // clients that ping more often than it allows.
      {GRPC_ARG_KEEPALIVE_TIME_MS, 30'000},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
  };
}

inline ChannelSettings ServerSettings() {
  ChannelSettings settings = CommonSettings();
  settings.insert(
      settings.end(),
      {
          {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000},
          {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0},
          // A worker has few open calls. Each may bring a message before the server has looked at
          // it.
          {GRPC_ARG_MAX_CONCURRENT_STREAMS, 64},
          // Whoever connects and does not finish its handshake is hung up on. It is 4 kB, half a
          // second at 8 kB/s.
          {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000},
          // A connection without calls is closed: a worker sends heartbeats.
          {GRPC_ARG_MAX_CONNECTION_IDLE_MS, 60'000},
      });
  return settings;
}

inline ChannelSettings ClientSettings(const Address& address) {
  ChannelSettings settings = CommonSettings();
  settings.insert(
      settings.end(),
      {
          // We repeat calls ourselves, since only we know which may be repeated. Retries by gRPC
          // cost a buffer per call.
          {GRPC_ARG_ENABLE_RETRIES, 0},
          {GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1},
          // An HTTP proxy from the environment (CONNECT) leads to other machines, where connections
          // are always TLS. It must not stand between a worker and a server of one machine or of a
          // private network.
          {GRPC_ARG_ENABLE_HTTP_PROXY, ProxyTo(address).has_value() ? 1 : 0},
          // One connection per link, so that bulk data of one link does not delay the heartbeat of
          // another.
          {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},
          // How long one attempt to connect may take. The caller, not gRPC, waits between two
          // attempts (connection.h).
          {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 5'000},
          {GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5'000},
          {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5'000},
      });
  return settings;
}

}  // namespace macaw::wire

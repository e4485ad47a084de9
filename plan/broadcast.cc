#include "plan/broadcast.h"

namespace macaw {

settings::Section<BroadcastConfig> BroadcastSection() {
  using B = BroadcastConfig;
  settings::Section<B> f;
  f.Add(
      "codec", &B::codec,
      "compression of the model that the server sends, one step a line, as update.codec: "
      "[\"bits 8\"], [\"bf16\"]; with broadcast.of = \"change\" also [\"topk 0.05\", \"bits 8\"]; "
      "default: none");
  f.AddChoice(
       "of", &B::of, {"auto", "model", "change"},
       "what broadcast.codec acts on. model: the model, anew in each round; change: the difference "
       "between the model and what was sent in the round before, for runs in which all clients "
       "take part in each round; auto: change where that is possible")
      .Needs([](const B& broadcast) { return broadcast.on(); }, "broadcast.codec");
  return f;
}

}  // namespace macaw

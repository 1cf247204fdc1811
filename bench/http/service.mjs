// A Restate service whose only handler does nothing: what is measured is Restate's own bookkeeping.
import * as restate from "@restatedev/restate-sdk";

// The SDK counts on it; Node has it since version 22.
Promise.withResolvers ??= () => {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
};

const answer = { text: "x".repeat(1024) };
const orders = restate.service({ name: "orders", handlers: { make: async () => answer } });
await restate.serve({ services: [orders], port: Number(process.argv[2]) });

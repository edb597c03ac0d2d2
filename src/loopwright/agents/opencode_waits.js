// Says on stdout that opencode waits to try again, and until when: its stream of events does not tell.
export const LoopwrightWaits = async () => ({
  event: async ({ event }) => {
    const status = event.type === "session.status" ? event.properties.status : undefined
    if (status?.type === "retry") process.stdout.write(JSON.stringify({ type: "retry", status }) + "\n")
  },
})

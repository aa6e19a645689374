/**
 * The websocket to the server: announces our flags, hands on what comes, reconnects with backoff.
 */

import { parsePreview } from "./frames.js";

const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 15_000;
const STORED_ID = "nodeloom-client-id";

/**
 * This page's client id. A reload keeps it, so that a running request still reports here; it is
 * stored only while the page is unloaded, so that a duplicated tab does not get the same one.
 *
 * @returns {string}
 */
export function takeClientId() {
  const id = sessionStorage.getItem(STORED_ID) ?? randomId();
  sessionStorage.removeItem(STORED_ID);
  addEventListener("pagehide", () => sessionStorage.setItem(STORED_ID, id));
  addEventListener("pageshow", () => sessionStorage.removeItem(STORED_ID));
  return id;
}

/** @returns {string} 32 hex digits (randomUUID exists on secure origins only) */
function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * @typedef {object} SocketListener
 * @property {(type: string, data: any) => void} onMessage
 * @property {(frame: import("./frames.js").PreviewFrame) => void} onPreview
 * @property {(state: "connecting" | "open" | "lost") => void} onState
 */

export class Socket {
  /**
   * @param {string} clientId
   * @param {SocketListener} listener
   */
  constructor(clientId, listener) {
    this.clientId = clientId;
    this.listener = listener;
    this.delayMs = FIRST_DELAY_MS;
    /** @type {ReturnType<typeof setTimeout> | null} */
    this.timer = null;
    addEventListener("online", () => this.retryNow());
  }

  /** Open the connection; from then on it is kept open. */
  connect() {
    this.timer = null;
    this.listener.onState("connecting");
    const address = new URL("ws", document.baseURI);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    address.searchParams.set("clientId", this.clientId);
    const socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.delayMs = FIRST_DELAY_MS;
      const data = { supports_preview_metadata: true, supports_nodeloom_graph: true };
      socket.send(JSON.stringify({ type: "feature_flags", data }));
      this.listener.onState("open");
    };
    socket.onmessage = (event) => this.#receive(event.data);
    socket.onclose = () => this.#retryLater();
  }

  /** Try again at once if a retry is waiting for its time. */
  retryNow() {
    if (this.timer === null) return;
    clearTimeout(this.timer);
    this.connect();
  }

  #retryLater() {
    this.listener.onState("lost");
    // Half of the delay is random, so that many pages don't all return to a restarted server at once.
    const delay = this.delayMs * (0.5 + Math.random() / 2);
    this.delayMs = Math.min(this.delayMs * 2, LONGEST_DELAY_MS);
    this.timer = setTimeout(() => this.connect(), delay);
  }

  /** @param {string | ArrayBuffer} data */
  #receive(data) {
    if (typeof data !== "string") {
      const frame = parsePreview(data);
      if (frame !== null) this.listener.onPreview(frame);
      return;
    }
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      return; // other programs' packs may send anything; it is not for us
    }
    if (typeof message?.type === "string") this.listener.onMessage(message.type, message.data ?? {});
  }
}

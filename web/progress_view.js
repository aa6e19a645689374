/**
 * The request that is looked at: how far it is, what it works on, its preview, its pictures, or why
 * it failed.
 */

import { pictureAddress } from "./api.js";
import { byId, html } from "./elements.js";

/** @typedef {import("./api.js").PictureFile} PictureFile */

export class ProgressView {
  /** @param {() => void} onCancel */
  constructor(onCancel) {
    this.heading = byId("now-heading");
    this.bar = /** @type {HTMLProgressElement} */ (byId("bar"));
    this.line = byId("now-line");
    this.failure = byId("failure");
    this.pictures = byId("pictures");
    this.cancel = /** @type {HTMLButtonElement} */ (byId("cancel"));
    this.cancel.addEventListener("click", () => {
      this.cancel.disabled = true;
      onCancel();
    });
    /** @type {HTMLImageElement | null} */
    this.preview = null;
  }

  /**
   * Begin to show another request.
   * @param {string} title
   * @param {string} line
   */
  begin(title, line) {
    this.heading.textContent = title;
    this.#setState("active");
    this.bar.hidden = false;
    this.bar.value = 0;
    this.bar.max = 1;
    this.say(line);
    this.failure.hidden = true;
    this.failure.replaceChildren();
    this.#dropPreview();
    this.pictures.replaceChildren();
    this.cancel.disabled = false;
    this.cancel.hidden = false;
  }

  /** @param {string} line what happens now */
  say(line) {
    this.line.textContent = line;
  }

  /** @param {{value: number, max: number}} done */
  setDone(done) {
    if (done.max === 0) return;
    this.bar.max = done.max;
    this.bar.value = done.value;
  }

  /** @param {Blob} image a picture in the making */
  showPreview(image) {
    if (this.preview === null) {
      this.preview = /** @type {HTMLImageElement} */ (
        html("img", { class: "preview", alt: "Preview of the picture in the making" })
      );
      this.pictures.append(html("figure", {}, this.preview, html("figcaption", {}, "preview")));
    }
    const before = this.preview.src;
    this.preview.src = URL.createObjectURL(image);
    if (before) URL.revokeObjectURL(before);
  }

  /** @param {PictureFile[]} files finished pictures */
  addPictures(files) {
    this.#dropPreview();
    for (const file of files) this.#addPicture(file);
  }

  /**
   * @param {PictureFile} file
   */
  #addPicture(file) {
    const address = pictureAddress(file);
    const images = [...this.pictures.querySelectorAll("a[data-picture]")];
    if (images.some((known) => known.getAttribute("href") === address)) return;
    const name = file.subfolder ? `${file.subfolder}/${file.filename}` : file.filename;
    this.pictures.append(
      html(
        "figure",
        {},
        html(
          "a",
          { href: address, target: "_blank", rel: "noopener", "data-picture": name },
          html("img", { class: "picture", src: address, alt: `Picture ${name}` }),
        ),
        html("figcaption", {}, file.type === "temp" ? `${name} (not kept)` : name),
      ),
    );
  }

  /** @param {string} line */
  succeed(line) {
    this.#end("done", line);
    this.bar.value = this.bar.max;
  }

  /** @param {string} line */
  stop(line) {
    this.#end("stopped", line);
  }

  /**
   * @param {any} error the data of execution_error
   * @param {Map<string, string>} names
   */
  fail(error, names) {
    const id = String(error.node_id ?? "");
    const name = names.get(id) ?? String(error.node_type ?? "node");
    this.#end("failed", `Failed in ${name} #${id}.`);
    const parts = [
      html("p", {}, html("strong", {}, String(error.exception_type ?? "error")), " ", String(error.exception_message ?? "").trim()),
    ];
    const traceback = (error.traceback ?? []).map(String).join("");
    if (traceback) {
      parts.push(
        html("details", {}, html("summary", {}, "Traceback"), html("pre", { tabindex: 0 }, traceback)),
      );
    }
    this.failure.replaceChildren(...parts);
    this.failure.hidden = false;
  }

  /**
   * @param {"done" | "failed" | "stopped"} state
   * @param {string} line
   */
  #end(state, line) {
    this.#setState(state);
    this.say(line);
    this.cancel.hidden = true;
    this.#dropPreview();
  }

  /** @param {string} state */
  #setState(state) {
    byId("now").dataset.state = state;
  }

  #dropPreview() {
    if (this.preview === null) return;
    if (this.preview.src) URL.revokeObjectURL(this.preview.src);
    this.preview.closest("figure").remove();
    this.preview = null;
  }
}

/* Search in pages that are opened as files: browsers start no worker from a file, so its script runs in a hidden frame.
 * The theme looks for the name IFrameWorker, and would fetch the package iframe-worker if no file were called so. */
if (location.protocol === "file:") {
    window.IFrameWorker = class extends EventTarget {
        constructor(url) {
            super();
            const frame = document.createElement("iframe");
            frame.hidden = true;
            document.body.append(frame);
            this.inside = frame.contentWindow;
            this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
            const script = this.inside.document.createElement("script");
            this.ready = new Promise((resolve) => script.addEventListener("load", resolve));
            script.src = url;
            this.inside.document.body.append(script);
        }

        postMessage(data) {
            this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
        }
    };
    window.Worker = window.IFrameWorker;
}

// The drawing of a partition: made by the server as SVG of numbers only, looked at and walked through here.
// Focus stays on its segment when a new drawing comes.
const MOST_TRIES = 5;
const AGAIN_MS = 1000;

export default {
  template: `
    <div class="picture-box" data-testid="picture" @pointerover="hover" @pointerdown="pointing = true" @focusin="focus"
         @click="choose" @dblclick="open" @keydown="walk"></div>`,
  props: { svg: String },
  emits: ["width", "look", "open"],
  data: () => ({ pointing: false }),
  mounted() {
    this.draw();
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.$el);
  },
  unmounted() {
    this.observer.disconnect();
    clearTimeout(this.resting);
    clearTimeout(this.again);
  },
  updated() {
    this.draw();
    this.fit();
  },
  methods: {
    draw() {
      if (this.svg === this.drawn) return;
      const focused = this.$el.contains(document.activeElement) && this.baseOf(document.activeElement);
      this.$el.innerHTML = this.svg;
      this.drawn = this.svg;
      if (!focused) return;
      this.restoring = true;
      this.at(focused)?.focus({ preventScroll: true });
      this.restoring = false;
    },
    fit() {
      // Until the drawing is as wide as its place: the server drops what is sent before a page is known to it.
      const width = Math.floor(this.$el.clientWidth);
      const drawn = this.$el.querySelector("svg")?.viewBox.baseVal.width ?? 0;
      const fits = Math.abs(width - drawn) < 4;
      if (fits || width !== this.asked) this.tries = 0;
      if (fits || !width) return;
      this.asked = width;
      this.tries += 1;
      if (this.tries > MOST_TRIES) return;
      this.$emit("width", width);
      clearTimeout(this.again);
      this.again = setTimeout(() => this.fit(), AGAIN_MS);
    },
    baseOf(target) {
      return target?.closest?.(".segment")?.dataset.baseOffset;
    },
    at(base) {
      return this.$el.querySelector(`.segment[data-base-offset="${base}"]`);
    },
    look(base, how) {
      if (base === undefined) return;
      this.$emit("look", { base, how });
    },
    hover(event) {
      const base = this.baseOf(event.target);
      clearTimeout(this.resting);
      if (event.pointerType === "mouse") this.resting = setTimeout(() => this.look(base, "hover"), 40);
    },
    focus(event) {
      // A pointer chooses with its click; focus alone is the keyboard's.
      if (!this.pointing && !this.restoring) this.look(this.baseOf(event.target), "focus");
    },
    choose(event) {
      this.pointing = false;
      this.look(this.baseOf(event.target), "click");
    },
    open(event) {
      const base = this.baseOf(event.target);
      if (base !== undefined) this.$emit("open", base);
    },
    walk(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const all = [...this.$el.querySelectorAll(".segment")];
      const here = all.findIndex((one) => one === document.activeElement);
      const places = {
        ArrowRight: here + 1,
        ArrowLeft: here - 1,
        PageDown: here + 10,
        PageUp: here - 10,
        Home: 0,
        End: all.length - 1,
      };
      if (here < 0) return;
      if (event.key === "Enter") {
        this.$emit("open", this.baseOf(all[here]));
      } else if (event.key in places) {
        const next = all[Math.max(0, Math.min(places[event.key], all.length - 1))];
        for (const one of all) one.setAttribute("tabindex", one === next ? "0" : "-1");
        next.focus();
      } else {
        return;
      }
      event.preventDefault();
    },
  },
};

// Records, one row each: walked through by keyboard, opened by click or Enter. Everything is shown as text.
export default {
  template: `
    <div class="record-list" :class="{ busy, following }" ref="box">
      <button v-if="following && paused" type="button" class="button resume" data-testid="resume"
              @click="resume">{{ paused }}</button>
      <table v-if="rows.length" :class="{ merged: rows[0].partition }" data-testid="records" :aria-label="label" :aria-busy="busy">
        <thead><tr>
          <th v-if="rows[0].partition" scope="col" class="number">Partition : offset</th>
          <th v-else scope="col" class="number" :aria-sort="order" :title="orderTip">Offset {{ arrow }}</th>
          <th v-if="rows[0].partition" scope="col" :aria-sort="order" :title="orderTip">{{ timeHead }} {{ arrow }}</th>
          <th v-else scope="col" :title="zone">{{ timeHead }}</th><th scope="col">Key</th>
          <th scope="col">Value</th><th scope="col" class="number size">Size</th>
        </tr></thead>
        <tbody @click="click" @keydown="rowKey" @focusin="remember">
          <tr v-for="row in rows" :key="row.id" data-testid="record" :data-id="row.id" :data-offset="row.offset" :tabindex="row.id === stop ? 0 : -1"
              :class="{ opened: row.id === opened, here: row.id === here, [row.kind]: true }"
              :aria-current="row.id === opened ? 'true' : null">
            <th scope="row" class="number offset"><span v-if="row.partition" class="partition">{{ row.partition }} :</span> {{ row.offsetText }}</th>
            <td class="time" :title="row.exact">{{ row.time }}</td>
            <td class="key" :class="row.keyForm" data-testid="record-key">{{ row.key }}</td>
            <td class="value" data-testid="record-value">
              <div><span v-if="row.tag" class="tag" :class="row.kind" :data-testid="row.kind">{{ row.tag }}</span>
              <span class="text" :class="row.valueForm">{{ row.value }}</span>
              <span v-if="row.headers" class="tag headers" data-testid="record-headers">{{ row.headers }}</span></div></td>
            <td class="number size">{{ row.size }}</td>
          </tr>
        </tbody>
      </table>
      <div v-else-if="busy" class="skeleton" data-testid="loading" role="status"><p>{{ waiting || "Reading records …" }}</p>
        <i v-for="line in 8" :key="line" aria-hidden="true"></i></div>
      <div v-else class="empty" data-testid="empty" role="status"><p>{{ empty }}</p></div>
    </div>`,
  props: {
    rows: Array,
    opened: String,
    following: Boolean,
    paused: String,
    busy: Boolean,
    descending: Boolean,
    label: String,
    empty: String,
    waiting: String,
    zone: String,
  },
  emits: ["open", "newer", "older", "follow", "scrolled", "place"],
  data: () => ({ here: null }),
  computed: {
    timeHead() {
      return this.zone ? `Time (${this.zone.split("/").pop().replaceAll("_", " ")})` : "Time";
    },
    order() {
      return this.descending ? "descending" : "ascending";
    },
    orderTip() {
      return `${this.descending ? "Newest first" : "Oldest first"}${this.rows[0].partition && this.zone ? `, ${this.zone}` : ""}`;
    },
    arrow() {
      return this.descending ? "↓" : "↑";
    },
    // The one row that the Tab key stops at.
    stop() {
      return this.here ?? this.opened ?? this.rows[0]?.id;
    },
  },
  mounted() {
    this.onKey = (event) => this.key(event);
    this.onScroll = () => this.scroll();
    this.onBack = () => this.$emit("place", location.search);
    addEventListener("keydown", this.onKey);
    addEventListener("popstate", this.onBack);
    addEventListener("scroll", this.onScroll, { passive: true });
    addEventListener("scrollend", this.onScroll, { passive: true });
  },
  unmounted() {
    removeEventListener("keydown", this.onKey);
    removeEventListener("popstate", this.onBack);
    removeEventListener("scroll", this.onScroll);
    removeEventListener("scrollend", this.onScroll);
  },
  updated() {
    if (this.here !== null && !this.rows.some((row) => row.id === this.here)) this.here = null;
  },
  methods: {
    row(id) {
      return this.$refs.box.querySelector(`tr[data-id="${id}"]`);
    },
    remember(event) {
      this.here = event.target.closest("tr")?.dataset.id ?? this.here;
    },
    click(event) {
      // Text can be selected with the mouse without opening its record.
      if (String(getSelection())) return;
      const id = event.target.closest("tr")?.dataset.id;
      if (id === undefined) return;
      this.here = id;
      this.$emit("open", id);
    },
    rowKey(event) {
      if (event.key !== "Enter" || event.target.tagName !== "TR") return;
      this.$emit("open", event.target.dataset.id);
      event.preventDefault();
      event.stopPropagation();
    },
    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
      const target = event.target;
      if (target instanceof Element && target.closest("input, textarea, select, dialog, [contenteditable]")) return;
      const within = this.$refs.box.contains(target);
      const arrows = within || target === document.body;
      if (event.key === "j" || (event.key === "ArrowDown" && arrows)) this.step(1);
      else if (event.key === "k" || (event.key === "ArrowUp" && arrows)) this.step(-1);
      else if (event.key === "n") this.$emit("newer");
      else if (event.key === "p") this.$emit("older");
      else if (event.key === "f") this.$emit("follow");
      else if (event.key === "Enter" && this.here !== null && target === document.body) this.$emit("open", this.here);
      else if (event.key === "Escape" && this.opened) this.$emit("open", null);
      else return;
      event.preventDefault();
    },
    step(by) {
      if (!this.rows.length) return;
      const at = this.rows.findIndex((row) => row.id === (this.here ?? this.opened));
      const next = at < 0 ? (by > 0 ? 0 : this.rows.length - 1) : Math.max(0, Math.min(at + by, this.rows.length - 1));
      this.here = this.rows[next].id;
      this.row(this.here)?.focus({ preventScroll: true });
      this.row(this.here)?.scrollIntoView({ block: "nearest" });
      if (this.opened && this.opened !== this.here) this.$emit("open", this.here);
    },
    resume() {
      if (this.opened) this.$emit("open", null);
      scrollTo({ top: 0 });
      this.scroll();
    },
    scroll() {
      const away = this.$refs.box.getBoundingClientRect().top < 40;
      if (away !== this.away) {
        this.away = away;
        this.$emit("scrolled", away);
      }
    },
  },
};

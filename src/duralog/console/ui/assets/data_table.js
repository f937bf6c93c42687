// A table that the server sorts, searches and pages: only the rows of one page are ever here.
// A cell is text, or { text, href, act, title, tone, sub, narrow, bar, spark, mono }. Everything is shown as text.
export default {
  template: `
    <div class="data-table">
      <div class="table-tools" v-if="searchable || $slots.default">
        <input v-if="searchable" type="search" data-search :data-testid="name + '-search'" :aria-label="'Search ' + label"
               :placeholder="'Search ' + label.toLowerCase()" autocomplete="off" spellcheck="false"
               v-model="query" @input="searchSoon" @keydown.enter="searchNow" />
        <slot></slot>
      </div>
      <div class="table-box" tabindex="0" role="region" :aria-label="label">
        <table :data-testid="name">
          <thead><tr>
            <th v-for="column in columns" :key="column.name" scope="col" :title="column.hint"
                :class="columnClass(column)"
                :aria-sort="column.name === sort.by ? (sort.descending ? 'descending' : 'ascending') : null">
              <button v-if="column.sortable" type="button" class="sorter" :data-testid="name + '-by-' + column.name"
                      @click="$emit('sort', column.name)">{{ column.label }}<span class="arrow" aria-hidden="true">{{
                      column.name === sort.by ? (sort.descending ? '↓' : '↑') : '' }}</span></button>
              <span v-else>{{ column.label }}</span>
            </th>
          </tr></thead>
          <tbody>
            <tr v-for="row in rows" :key="row.key" :data-key="row.key" :class="row.tone">
              <component v-for="(column, place) in columns" :is="place === 0 ? 'th' : 'td'" :key="column.name"
                         :scope="place === 0 ? 'row' : null" :class="columnClass(column)" :data-column="column.name">
                <template v-for="cell in [asCell(row.cells[place])]">
                  <svg v-if="cell.spark" class="spark" viewBox="0 0 80 20" preserveAspectRatio="none" aria-hidden="true">
                    <path :d="cell.spark" /></svg>
                  <button v-if="cell.act" type="button" class="cell-button" :title="cell.title" :aria-label="cell.act"
                          @click="$emit('act', row.key)">{{ cell.text }}</button>
                  <a v-else-if="cell.href" :href="cell.href" :title="cell.title">{{ cell.text }}</a>
                  <span v-else :title="cell.title" :class="cell.tone ? 'tone ' + cell.tone : null">{{ cell.text }}</span>
                  <span v-if="cell.sub" class="sub">{{ cell.sub }}</span>
                  <span v-if="cell.narrow" class="sub narrow-only">{{ cell.narrow }}</span>
                  <span v-if="cell.bar !== undefined" class="bar" aria-hidden="true">
                    <span :style="{ width: 100 * cell.bar + '%' }"></span></span>
                </template>
              </component>
            </tr>
          </tbody>
        </table>
        <p v-if="!rows.length" class="empty-row" role="status">{{ query ? nothing : empty }}</p>
      </div>
      <nav v-if="total > perPage" class="pager" :aria-label="'Pages of ' + label.toLowerCase()">
        <button type="button" :disabled="page <= 0" :data-testid="name + '-previous'" aria-label="Previous page"
                @click="$emit('page', page - 1)">‹</button>
        <span role="status">{{ range }}</span>
        <button type="button" :disabled="(page + 1) * perPage >= total" :data-testid="name + '-next'"
                aria-label="Next page" @click="$emit('page', page + 1)">›</button>
      </nav>
    </div>`,
  props: {
    name: String,
    label: String,
    columns: Array,
    rows: Array,
    sort: Object,
    page: Number,
    perPage: Number,
    total: Number,
    searchable: Boolean,
    initialQuery: String,
    keepsQuery: Boolean,
    empty: String,
    nothing: String,
  },
  data() {
    return { query: this.initialQuery, timer: 0 };
  },
  computed: {
    range() {
      const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ",");
      const first = this.page * this.perPage;
      return `${grouped(first + 1)}–${grouped(Math.min(first + this.perPage, this.total))} of ${grouped(this.total)}`;
    },
  },
  methods: {
    asCell: (cell) => (cell !== null && typeof cell === "object" ? cell : { text: cell }),
    columnClass: (column) => [column.numeric ? "number" : "", column.wide ? "wide-only" : "", column.mono ? "mono" : ""],
    searchSoon() {
      clearTimeout(this.timer);
      this.timer = setTimeout(this.searchNow, 150);
    },
    searchNow() {
      clearTimeout(this.timer);
      this.$emit("search", this.query);
      if (!this.keepsQuery) return;
      const address = new URL(location);
      this.query ? address.searchParams.set("q", this.query) : address.searchParams.delete("q");
      history.replaceState(history.state, "", address);
    },
  },
};

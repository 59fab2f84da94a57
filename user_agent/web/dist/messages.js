import{a}from"./chunk-QLAFQAZC.js";export{a as messages};
